"""Distributions over actions that are counted: drawn by their logits, or the best of their values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.policy.head import Actions, Drawn, Floats, evenly_spread


class Categorical:
    """One or several independent choices, each with the softmax of its own logits.

    Args:
        sizes: number of choices of each; the network gives their logits one after the other.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.num_outputs = sum(sizes)
        self._sizes = tuple(sizes)
        ends = np.cumsum(self._sizes).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        self._log_uniform = -sum(math.log(size) for size in self._sizes)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions, each as likely as any other, and their log probabilities."""
        action = rng.integers(0, self._sizes, (num, len(self._sizes)))
        return self._shaped(action), np.full(num, self._log_uniform, np.float32)

    def mode(self, output: Floats) -> Actions:
        """The likeliest action of each row ``[N, sum(sizes)]``; of equals the first."""
        return self._shaped(self._best(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row, int64 ``[N]``, or ``[N, k]`` of several sizes.

        Takes ``[N, sum(sizes)]`` standard exponential numbers ``e`` (float64) and chooses the greatest
        ``logit - log(e)``, the Gumbel-max trick.
        """
        action = self._best(output - np.log(rng.standard_exponential(output.shape)))
        return self._shaped(action), self._log_prob(output, action) if log_prob else None

    def env_action(self, action: Actions) -> Actions:
        """The same."""
        return action

    def _best(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """``[N, k]``."""
        return np.stack([scores[:, part].argmax(1) for part in self._parts], 1)

    def _log_prob(self, output: Floats, action: NDArray[np.int64]) -> Floats:
        """``[N]``: the sum over the choices of the log softmax at what was chosen."""
        total = np.zeros(len(output), np.float32)
        for part, chosen in zip(self._parts, action.T, strict=True):
            logits = output[:, part]
            logits = logits - logits.max(1, keepdims=True)
            total += np.take_along_axis(logits, chosen[:, None], 1)[:, 0] - np.log(np.exp(logits).sum(1))
        return total

    def _shaped(self, action: NDArray[np.int64]) -> Actions:
        return action[:, 0] if len(self._sizes) == 1 else action


class EpsilonGreedy:
    """The action of the greatest value, or with probability ``epsilon ** (1 + spread * place)`` any action
    (Ape-X, arXiv 1803.00933, section 4.1, which takes a spread of 7).

    Args:
        num_actions: number of choices.
        epsilon: in [0, 1]; of the environment at place 0.
        spread: at least 0; with 0 all environments explore alike.
        atoms: numbers for each action: its value, or where there are several the logits of a distribution
            over values (C51, arXiv 1707.06887).
        v_min: value of the first atom.
        v_max: value of the last atom.
    """

    def __init__(
        self, num_actions: int, epsilon: float, spread: float, atoms: int, v_min: float, v_max: float
    ) -> None:
        if not 0.0 <= epsilon <= 1.0 or spread < 0.0:
            raise ValueError(f"epsilon {epsilon} is not within 0 to 1, or spread {spread} is below 0")
        self.num_outputs = num_actions * atoms
        self._num, self._atoms = num_actions, atoms
        self._epsilon, self._spread = epsilon, spread
        self._support = np.linspace(v_min, v_max, atoms, dtype=np.float32)

    def values(self, output: Floats) -> Floats:
        """The value ``[N, num_actions]`` of each action, for rows ``[N, num_actions * atoms]``."""
        if self._atoms == 1:
            return output
        logits = output.reshape(len(output), self._num, self._atoms)
        weight = np.exp(logits - logits.max(2, keepdims=True))
        values: Floats = (weight @ self._support) / weight.sum(2)
        return values

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions, each as likely as any other, and their log probabilities."""
        return rng.integers(0, self._num, num), np.full(num, -math.log(self._num), np.float32)

    def mode(self, output: Floats) -> NDArray[np.int64]:
        """The best action of each row; of equals the first."""
        best: NDArray[np.int64] = self.values(output).argmax(1)
        return best

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row, int64 ``[N]``, from ``[N]`` uniform numbers (float64; below epsilon any
        action is taken) and then ``[N]`` uniform actions.
        """
        best = self.mode(output)
        places = evenly_spread(len(output)) if place is None else np.asarray(place)
        epsilon = self._epsilon ** (1.0 + self._spread * places.astype(np.float64))
        explores = rng.random(len(output)) < epsilon
        action = np.where(explores, rng.integers(0, self._num, len(output)), best)
        if not log_prob:
            return action, None
        return action, np.log(epsilon / self._num + (1.0 - epsilon) * (action == best)).astype(np.float32)

    def env_action(self, action: Actions) -> Actions:
        """The same."""
        return action
