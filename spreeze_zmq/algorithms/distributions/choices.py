"""How the output of an acting network becomes one of several actions, or one of each of several kinds.

Outputs are rows ``[B, num_outputs]``; ``A`` is the number of discrete actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.algorithms.distributions.boxes import Distribution, check
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor

#: The logit or value of an illegal action: finite, so that no gradient of a sum over all actions is NaN, and
#: so low that its probability is exactly 0.
ILLEGAL = -1e8


class Categorical(Distribution):
    """One choice for each of ``env.action_sizes``; rows hold the logits of all choices side by side.

    Each ``mask`` is ``[B, num_outputs]`` bool: a choice that it forbids has the probability 0. None forbids
    none.
    """

    def __init__(self, env: EnvironmentSpec) -> None:
        check(self, env, ("discrete", "multi_discrete"))
        self.sizes = tuple(env.action_sizes)
        self.num_outputs = sum(self.sizes)
        self._masked = env.action_mask

    def describe(self) -> dict[str, Any]:
        return {"kind": "categorical", "sizes": list(self.sizes), **_asks_for_masks(self._masked)}

    def sample(self, output: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Actions, int64 ``[B]`` or ``[B, A]`` for several, and their log probabilities ``[B]``."""
        logits = self.log_probs(output, mask)
        action = torch.cat([torch.multinomial(part.exp(), 1) for part in logits], 1)
        action = action[:, 0] if len(self.sizes) == 1 else action
        return action, self.log_prob(output, action, mask)

    def log_prob(self, output: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log probabilities ``[B]`` of actions ``[B]`` or ``[B, A]``."""
        choices = action.reshape(-1, len(self.sizes)).long().unbind(1)
        parts = zip(self.log_probs(output, mask), choices, strict=True)
        return torch.cat([part.gather(1, choice.unsqueeze(1)) for part, choice in parts], 1).sum(1)

    def entropy(self, output: Tensor, mask: Tensor | None = None) -> Tensor:
        """The entropy in nats, ``[B]``."""
        terms = [(part.exp() * part).sum(1, keepdim=True) for part in self.log_probs(output, mask)]
        return -torch.cat(terms, 1).sum(1)

    def log_probs(self, output: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """The log probabilities ``[B, size]`` of all choices of each discrete action."""
        logits = legal(output.float(), mask)
        return [part.log_softmax(1) for part in torch.split(logits, list(self.sizes), 1)]


class EpsilonGreedy(Distribution):
    """The action of the highest value, or with a small probability a uniformly random one.

    Environment ``i`` of the run takes a random action with the probability ``epsilon ** (1 + spread * p_i)``,
    with ``p_i`` spread evenly from 0 to 1 over all environments (Horgan et al. 2018, arXiv 1803.00933,
    section 4.1, with a spread of 7).

    Args:
        env: has the number of actions.
        epsilon: the base of that probability.
        spread: 0 for the same probability in all environments.
        atoms: 1 for rows of action values; above 1, for each action in turn the logits of that many returns,
            evenly spaced.
        v_min: lowest of these returns.
        v_max: highest of these returns.
    """

    def __init__(
        self,
        env: EnvironmentSpec,
        epsilon: float,
        spread: float = 0.0,
        atoms: int = 1,
        v_min: float = 0.0,
        v_max: float = 1.0,
    ) -> None:
        check(self, env, ("discrete",))
        self.num_actions, self.atoms = env.num_actions, atoms
        self.num_outputs = self.num_actions * atoms
        self.epsilon, self.spread = epsilon, spread
        self.v_min, self.v_max = v_min, v_max
        self._masked = env.action_mask

    def describe(self) -> dict[str, Any]:
        exploration = {"epsilon": self.epsilon, "spread": self.spread}
        atoms = {"atoms": self.atoms, "v_min": self.v_min, "v_max": self.v_max}
        masks = _asks_for_masks(self._masked)
        return {"kind": "epsilon_greedy", "num_actions": self.num_actions, **exploration, **atoms, **masks}

    def values(self, output: Tensor) -> Tensor:
        """The expected return ``[B, num_actions]`` of each action."""
        return expected_values(output, self.atoms, self.v_min, self.v_max)


def legal(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Logits or values ``[B, num_actions]`` with ``ILLEGAL`` for each action that a mask, of the same shape
    and bool, forbids; as they are where it is None.
    """
    return rows if mask is None else rows.masked_fill(~mask, ILLEGAL)


def _asks_for_masks(masked: bool) -> dict[str, bool]:
    """What a description says of an environment with action masks; nothing for others."""
    return {"action_mask": True} if masked else {}


def expected_values(output: Tensor, atoms: int, v_min: float, v_max: float) -> Tensor:
    """The expected return ``[B, num_actions]`` of each action from rows of :class:`EpsilonGreedy`."""
    if atoms == 1:
        return output.float()
    return nn.expectation(output.float().reshape(len(output), -1, atoms), v_min, v_max)
