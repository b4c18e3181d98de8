"""What SAC and TD3 share: twin critics, of returns or of their distributions, and a policy network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.algorithms.declarations import Loss
from spreeze_zmq.algorithms.distributional import DistributionalOptions
from spreeze_zmq.algorithms.encoders import EncoderOptions
from spreeze_zmq.algorithms.sequences import SequenceOptions, Sequences, Steps
from spreeze_zmq.algorithms.shared_encoder import SharedEncoderOptions
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

#: Scale of a fresh policy's last layer: its first actions are near the middle of the bounds, and no tanh
#: saturates.
POLICY_OUTPUT_SCALE = 0.01


@dataclass(frozen=True)
class TwinCriticOptions(SharedEncoderOptions, SequenceOptions, DistributionalOptions):
    """Options of an actor-critic with twin critics, whose networks may have memories."""

    learning_rate: float = option(
        1e-3, "Adam's step size", minimum=0.0, follows="sqrt", schedule=True, by_network=True
    )
    tau: float = option(
        0.01,
        "how far the target networks move towards the trained ones in an update",
        minimum=0.0,
        maximum=1.0,
        follows="average",
        schedule=True,
    )
    average_policy: float = with_default(SequenceOptions, "average_policy", 0.05)
    hidden_sizes: tuple[int, ...] = option((256, 256), "width of each hidden layer", minimum=1, fixed=True)
    critic_hidden_sizes: tuple[int, ...] = option(
        (), "of the critics, if not hidden_sizes", minimum=1, fixed=True
    )
    actor_hidden_sizes: tuple[int, ...] = option(
        (), "of the policy, if not hidden_sizes", minimum=1, fixed=True
    )
    activation: str = with_default(EncoderOptions, "activation", "relu")
    layer_norm: bool = option(
        False, "normalise the hidden layers of the critics (2302.02948: bounds extrapolation)", fixed=True
    )
    actor_layer_norm: bool = option(False, "normalise the hidden layers of the policy", fixed=True)
    twin_critics: str = option(
        "min",
        "bootstrap from the lower critic, or from the mean of both (2512.01996: for large batches)",
        choices=("min", "mean"),
    )


def critic_networks(options: TwinCriticOptions, num_inputs: int) -> Module:
    """Two fresh critics, from rows of observation and action to ``[2, B, num_atoms]``, and with a memory to
    the next, which both share as they would an encoder.
    """
    memory_size, hidden_sizes = options.memory_size, options.critic_hidden_sizes or options.hidden_sizes
    sizes = (num_inputs + memory_size, *hidden_sizes, options.num_atoms)
    twins = nn.ensemble(2, lambda: nn.mlp(sizes, options.activation, options.layer_norm))
    return nn.Recurrent(num_inputs, memory_size, twins) if memory_size else twins


def policy_network(options: TwinCriticOptions, num_inputs: int, num_outputs: int) -> Module:
    """A fresh policy, from rows of observations to ``[B, num_outputs]``, and with a memory to the next."""
    memory_size, hidden_sizes = options.memory_size, options.actor_hidden_sizes or options.hidden_sizes
    sizes = (num_inputs + memory_size, *hidden_sizes, num_outputs)
    head = nn.mlp(sizes, options.activation, options.actor_layer_norm, POLICY_OUTPUT_SCALE)
    return nn.Recurrent(num_inputs, memory_size, head) if memory_size else head


class TwinCritics:
    """The meaning of the outputs ``[2, B, num_atoms]`` of twin critics, and their loss.

    With one atom an output is the expected return, with more the logits of a distribution over returns.
    ``twin_critics = "min"`` bootstraps from the critic that expects less (Fujimoto et al. 2018, arXiv
    1802.09477, equation 10), ``"mean"`` from both.
    """

    def __init__(self, options: TwinCriticOptions) -> None:
        self._takes_lower = options.twin_critics == "min"
        self._num_atoms = options.num_atoms
        self._range = options.support

    def expected(self, output: Tensor) -> Tensor:
        """The expected return of each critic, ``[2, B]``."""
        if self._num_atoms == 1:
            return output.squeeze(2).float()
        return nn.expectation(output, *self._range)

    def value(self, output: Tensor) -> Tensor:
        """The expected return ``[B]`` of both critics together."""
        expected = self.expected(output)
        return torch.minimum(*expected) if self._takes_lower else expected.mean(0)

    def target(self, output_t: Tensor, r_t: Tensor, discount_t: Tensor) -> Tensor:
        """The target for ``r_t + discount_t * return``: its expectation ``[B]``, or probabilities
        ``[B, num_atoms]``.

        Args:
            output_t: output of the target critics in the next state, ``[2, B, num_atoms]``.
            r_t: ``[B]``.
            discount_t: ``[B]``.
        """
        if self._num_atoms == 1:
            return r_t + discount_t * self.value(output_t)
        output_t = output_t.float()
        if self._takes_lower:
            first, second = self.expected(output_t)
            lower_t = torch.where((first <= second).unsqueeze(1), output_t[0], output_t[1])
            probability = lower_t.softmax(1)
        else:
            probability = output_t.softmax(2).mean(0)
        return nn.project(probability, r_t, discount_t, *self._range)

    def loss(self, output_tm1: Tensor, target_tm1: Tensor, steps: Steps | Sequences) -> Loss:
        """Half the squared error, or the divergence from the target's distribution; summed over the critics.

        Args:
            output_tm1: output of the critics, ``[2, B, num_atoms]``.
            target_tm1: from :meth:`target`; no gradient flows into it.
            steps: the transitions, which may have weights.
        """
        target_tm1, weight = target_tm1.detach(), steps.batch.weight
        if self._num_atoms == 1:
            error = output_tm1.squeeze(2).float() - target_tm1
            loss = 0.5 * error.square()
        else:
            error = loss = nn.divergence(output_tm1, target_tm1)
        mean = (loss if weight is None else loss * weight).mean()
        metrics: dict[str, Any] = {
            "critic_loss": mean.detach(),
            "q_mean": lambda: self.expected(output_tm1).mean(),
            "target_mean": lambda: self._expected_target(target_tm1).mean(),
        }
        if self._num_atoms > 1:
            metrics |= nn.end_masses(target_tm1)
        priorities = None if weight is None else steps.priorities(error.detach().abs().mean(0))
        return Loss(len(output_tm1) * mean, metrics, priorities)

    def _expected_target(self, target: Tensor) -> Tensor:
        """``[B]``."""
        return target if self._num_atoms == 1 else nn.expectation(target.log(), *self._range)
