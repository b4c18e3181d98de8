"""Deep Q-network, DQN (Mnih et al. 2015, doi 10.1038/nature14236), and what became of it.

Double Q-learning (arXiv 1509.06461), dueling networks (1511.06581), distributions of returns (C51,
1707.06887), prioritised replay (1511.05952) and exploration spread over environments (Ape-X, 1803.00933), as
its options say. Names are by time, as in the transition ``(o_tm1, a_tm1, r_t, discount_t, o_t)``.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq.algorithms.algorithm import Algorithm, Loss, Networks
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.algorithms.lazy import nn, torch
from spreeze_zmq.algorithms.options import ReplayOptions, option
from spreeze_zmq.algorithms.returns import divergence, project
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.errors import InputError, InvalidEnvironment

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Sequential

    from spreeze_zmq.nn import PeriodicCopy

#: The smallest image, in height and width, that the Nature network can take.
LEAST_PIXELS = 36


class DQN(Algorithm):
    """The value of each action, of which the best is taken. One learner: its critic is its policy."""

    @dataclass(frozen=True)
    class Options(ReplayOptions):
        """Of DQN."""

        learning_rate: float = option(5e-4, "Adam's step size", minimum=0.0, follows="sqrt")
        network: str = option(
            "auto",
            "nature_cnn takes images [channels, height, width]; auto is that for them, else mlp",
            choices=("auto", "mlp", "nature_cnn"),
            fixed=True,
        )
        random_shift: int = option(
            0, "pixels that images are moved by at most, at random (DrQ, 2004.13649: 4)", minimum=0
        )
        hidden_sizes: tuple[int, ...] = option(
            (128, 128), "width of each hidden layer of an mlp", minimum=1, fixed=True
        )
        activation: str = option("relu", "between those", choices=("relu", "elu", "silu", "tanh"), fixed=True)
        layer_norm: bool = option(False, "normalise those", fixed=True)
        double: bool = option(True, "choose the next action by the trained network (1509.06461)")
        dueling: bool = option(
            False, "one value of the state, an advantage of each action (1511.06581)", fixed=True
        )
        num_atoms: int = option(
            1, "above 1, learn a distribution over this many returns (C51, 1707.06887)", minimum=1, fixed=True
        )
        v_min: float = option(-10.0, "lowest return of the distribution", fixed=True)
        v_max: float = option(10.0, "highest return of the distribution", fixed=True)
        tau: float = option(
            0.01,
            "how far the target network moves to the trained one; 1 copies it",
            minimum=0.0,
            maximum=1.0,
            follows="average",
        )
        target_every: int = option(1, "updates from one such move to the next", minimum=1)
        initial_epsilon: float = option(
            1.0, "share of actions that are any, at the start", minimum=0.0, maximum=1.0
        )
        final_epsilon: float = option(0.05, "that share at the end", minimum=0.0, maximum=1.0)
        exploration_steps: int = option(10_000, "transitions sampled from start to end", minimum=1)
        epsilon_spread: float = option(
            0.0,
            "the last environment explores with epsilon to the power of 1 + this, those between are between; "
            "7 in 1803.00933",
            minimum=0.0,
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.v_min >= self.v_max:
                raise InputError(f"v_min = {self.v_min:g} must lie below v_max = {self.v_max:g}")

    acts_in = ("discrete",)

    options: Options
    q: Module
    target_q: Module
    target_clock: PeriodicCopy

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment also where observations are no images and the network takes images."""
        super().check(env, options)
        shape = env.obs_shape
        if options.random_shift and (env.obs_dtype != "uint8" or len(shape) != 3):
            raise InvalidEnvironment(
                f"random_shift = {options.random_shift} moves images, this environment's observations are "
                f"{env.obs_dtype} of shape {list(shape)}"
            )
        if options.network == "nature_cnn" and not _fits_cnn(shape):
            raise InvalidEnvironment(
                f'network = "nature_cnn" takes images [channels, height, width] of at least {LEAST_PIXELS} '
                f"pixels each way, this environment's observations are {list(shape)}; resize or transpose "
                'them, or use network = "mlp"'
            )

    def networks(self) -> Networks:
        """The network of the action values, and its target."""
        q = self._network()
        targets = {"target_q": copy.deepcopy(q), "target_clock": nn.PeriodicCopy()}
        return Networks(critic={"q": q}, targets=targets, acting="q")

    def _network(self) -> Sequential:
        """From observations to ``num_atoms`` numbers of each action in turn."""
        options, shape, actions = self.options, self.env.obs_shape, self.env.action_sizes[0]
        outputs = options.num_atoms * (actions + options.dueling)
        images = self.env.obs_dtype == "uint8" and _fits_cnn(shape)
        if options.network == "nature_cnn" or (options.network == "auto" and images):
            network = nn.nature_cnn((shape[0], shape[1], shape[2]), outputs)
        else:
            sizes = (math.prod(shape), *options.hidden_sizes, outputs)
            network = nn.mlp(sizes, options.activation, options.layer_norm)
        if options.dueling:
            network.append(nn.Dueling(actions, options.num_atoms))
        return network

    def critic_loss(self, batch: Any) -> Loss:
        """One-step or n-step Q-learning, on a value or on a distribution of returns."""
        actions = self.distribution()
        o_tm1, o_t = self._shifted(batch.obs), self._shifted(batch.next_obs)
        output_tm1 = self._of(self.q(o_tm1), batch.action)
        with torch.no_grad():
            target_output_t = self.target_q(o_t)
            chooser_t = self.q(o_t) if self.options.double else target_output_t
            a_t = actions.values(chooser_t).argmax(1)
            target_tm1 = self._target(self._of(target_output_t, a_t), batch.reward, batch.discount)
        if self.options.num_atoms == 1:
            error = (output_tm1 - target_tm1).squeeze(1)
            # The error is clipped to [-1, 1] in the gradient: that of Huber's loss.
            loss = torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
            q_mean = output_tm1.detach().mean()
        else:
            error = loss = divergence(output_tm1, target_tm1)
            q_mean = (output_tm1.detach().softmax(1) @ self._returns(output_tm1)).mean()
        weighted = loss if batch.weight is None else loss * batch.weight
        return Loss(weighted.mean(), {"q_mean": q_mean}, priorities=error.detach().abs())

    def _shifted(self, obs: Tensor) -> Tensor:
        """Images a little moved, each in another direction, where the options ask for it."""
        pixels = self.options.random_shift
        return nn.random_shift(obs, self.env.obs_shape, pixels) if pixels else obs

    def _of(self, output: Tensor, action: Tensor) -> Tensor:
        """The numbers ``[B, num_atoms]`` of one action of each row."""
        rows = output.float().reshape(len(output), -1, self.options.num_atoms)
        index = action.long().view(-1, 1, 1).expand(-1, 1, self.options.num_atoms)
        return rows.gather(1, index).squeeze(1)

    def _target(self, output_t: Tensor, r_t: Tensor, discount_t: Tensor) -> Tensor:
        """``[B, num_atoms]``: ``r_t + discount_t * return``."""
        if self.options.num_atoms == 1:
            return r_t.unsqueeze(1) + discount_t.unsqueeze(1) * output_t
        return project(output_t.softmax(1), r_t, discount_t, self.options.v_min, self.options.v_max)

    def _returns(self, like: Tensor) -> Tensor:
        options = self.options
        return torch.linspace(options.v_min, options.v_max, options.num_atoms, device=like.device)

    def after_critic_step(self) -> None:
        """The target follows, in each update or every ``target_every`` updates."""
        if self.options.target_every == 1:
            nn.polyak(self.target_q, self.q, self.options.tau)
        else:
            self.target_clock.update(self.target_q, self.q, self.options.tau, self.options.target_every)

    def distribution(self) -> EpsilonGreedy:
        """The best action, or any with a probability that falls while the run samples."""
        options = self.options
        progress = min(1.0, self.env_steps / options.exploration_steps)
        epsilon = options.initial_epsilon + progress * (options.final_epsilon - options.initial_epsilon)
        atoms = (options.num_atoms, options.v_min, options.v_max)
        return EpsilonGreedy(self.env, epsilon, options.epsilon_spread, *atoms)


def _fits_cnn(shape: tuple[int, ...]) -> bool:
    """Whether observations, as networks see them, are images that the Nature network can take."""
    return len(shape) == 3 and min(shape[1:]) >= LEAST_PIXELS
