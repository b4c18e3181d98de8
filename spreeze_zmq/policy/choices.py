"""The distributions over discrete actions that a policy's description can name, in NumPy; see ``heads``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.policy.actor import ActionDistribution, Actions, Actor, Arrays, Drawn, Floats, places
from spreeze_zmq.policy.description import count, counts, number, numbers_in_order
from spreeze_zmq.policy.legal import LegalChoices, LegalEpsilonGreedy


class Categorical(ActionDistribution):
    """One or several independent choices of ``sizes`` options, each with the softmax of its own logits; the
    network's rows are these logits one after the other.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        self._sizes = counts(about, "sizes")
        self.num_outputs = sum(self._sizes)
        ends = np.cumsum(self._sizes).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        self._log_uniform = -sum(math.log(size) for size in self._sizes)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed actions, and their log probabilities."""
        action = rng.integers(0, self._sizes, (num, len(self._sizes)))
        return self._shaped(action), np.full(num, self._log_uniform, np.float32)

    def mode(self, output: Floats) -> Actions:
        """The likeliest action of each row ``[N, sum(sizes)]``; the first of equally likely ones."""
        return self._shaped(self._best(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row, int64 ``[N]``, or ``[N, k]`` for several choices.

        Takes ``[N, sum(sizes)]`` standard exponential numbers ``e`` (float64) and chooses the greatest
        ``logit - log(e)``, the Gumbel-max trick.
        """
        action = self._best(output - np.log(rng.standard_exponential(output.shape)))
        return self._shaped(action), self._log_prob(output, action) if log_prob else None

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """See :class:`Actor`."""
        return LegalChoices(self, legal, self._parts)

    def _best(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """``[N, k]``."""
        return np.stack([scores[:, part].argmax(1) for part in self._parts], 1)

    def _log_prob(self, output: Floats, action: NDArray[np.int64]) -> Floats:
        """``[N]``: the sum over the choices of the log softmax at the chosen option."""
        total = np.zeros(len(output), np.float32)
        for part, chosen in zip(self._parts, action.T, strict=True):
            logits = output[:, part]
            logits = logits - logits.max(1, keepdims=True)
            total += np.take_along_axis(logits, chosen[:, None], 1)[:, 0] - np.log(np.exp(logits).sum(1))
        return total

    def _shaped(self, action: NDArray[np.int64]) -> Actions:
        return action[:, 0] if len(self._sizes) == 1 else action


class EpsilonGreedy(ActionDistribution):
    """The action of the greatest value, or with probability ``epsilon ** (1 + spread * place)`` a uniform one
    (Ape-X, arXiv 1803.00933, section 4.1, with a spread of 7).

    The network's rows are ``atoms`` numbers for each action: its value, or for several atoms the logits of a
    distribution over values from ``v_min`` to ``v_max`` (C51, arXiv 1707.06887).
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        self._num, self._atoms = count(about, "num_actions"), count(about, "atoms")
        self.num_outputs = self._num * self._atoms
        if self.num_outputs != num_outputs:  # before the support is allocated
            raise ValueError(
                f"the last layer gives {num_outputs} numbers, {self._num} actions of {self._atoms} atoms "
                f"take {self.num_outputs}"
            )
        self._epsilon, self._spread = number(about, "epsilon"), number(about, "spread")
        if not 0.0 <= self._epsilon <= 1.0 or self._spread < 0.0:
            raise ValueError(
                f"epsilon {self._epsilon} is not within 0 to 1, or spread {self._spread} is below 0"
            )
        limits = numbers_in_order(about, "v_min", "v_max") if self._atoms > 1 else (0.0, 0.0)
        self._support = np.linspace(*limits, self._atoms, dtype=np.float32)

    def values(self, output: Floats) -> Floats:
        """The value ``[N, num_actions]`` of each action, for rows ``[N, num_actions * atoms]``."""
        if self._atoms == 1:
            return output
        logits = output.reshape(len(output), self._num, self._atoms)
        weight = np.exp(logits - logits.max(2, keepdims=True))
        values: Floats = (weight @ self._support) / weight.sum(2)
        return values

    def epsilon(self, num: int, place: Floats | None) -> NDArray[np.float64]:
        """The probability ``[num]`` of a random action in each environment."""
        place = places(num) if place is None else np.asarray(place)
        return np.asarray(self._epsilon ** (1.0 + self._spread * place.astype(np.float64)))

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """See :class:`Actor`."""
        return LegalEpsilonGreedy(self, legal, self._num)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed actions, and their log probabilities."""
        return rng.integers(0, self._num, num), np.full(num, -math.log(self._num), np.float32)

    def mode(self, output: Floats) -> NDArray[np.int64]:
        """The best action of each row; the first of equally good ones."""
        best: NDArray[np.int64] = self.values(output).argmax(1)
        return best

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row, int64 ``[N]``, from ``[N]`` uniform numbers (float64; below epsilon the
        action is random) and then ``[N]`` uniform actions.
        """
        best, epsilon = self.mode(output), self.epsilon(len(output), place)
        explores = rng.random(len(output)) < epsilon
        action = np.where(explores, rng.integers(0, self._num, len(output)), best)
        if not log_prob:
            return action, None
        return action, np.log(epsilon / self._num + (1.0 - epsilon) * (action == best)).astype(np.float32)
