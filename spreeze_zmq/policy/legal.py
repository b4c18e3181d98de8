"""Discrete actions drawn among the legal ones, which an action mask names: those of a categorical, and
those of an epsilon-greedy choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.policy.actor import ActionDistribution, Actions, Drawn, Floats

if TYPE_CHECKING:
    from spreeze_zmq.policy.choices import Categorical, EpsilonGreedy


class LegalChoices(ActionDistribution):
    """A categorical whose illegal choices have the probability 0.

    Args:
        head: the distribution over all choices.
        legal: ``[N, sum(sizes)]`` bool.
        parts: the places of each discrete action's choices in a row.

    Raises:
        ValueError: the flags are of another shape.
        InputError: a row allows no choice of one of the discrete actions.
    """

    def __init__(self, head: Categorical, legal: NDArray[np.bool_], parts: Sequence[slice]) -> None:
        self.num_outputs = head.num_outputs
        self._head, self._legal = head, checked(legal, self.num_outputs, parts)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed legal actions, and their log probabilities."""
        return self._head.draw(self._masked(np.zeros_like(self._legal, np.float32)), rng, None, log_prob=True)

    def mode(self, output: Floats) -> Actions:
        """The likeliest legal action of each row."""
        return self._head.mode(self._masked(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """A legal action for each row, as the head draws it."""
        return self._head.draw(self._masked(output), rng, place, log_prob)

    def _masked(self, output: Floats) -> Floats:
        return np.where(self._legal, output, np.float32(-np.inf))


class LegalEpsilonGreedy(ActionDistribution):
    """The legal action of the greatest value, or with the head's probability a uniformly random legal one.

    Args:
        head: chooses among all actions.
        legal: ``[N, num_actions]`` bool.
        num_actions: of the head.

    Raises:
        ValueError: the flags are of another shape.
        InputError: a row allows no action.
    """

    def __init__(self, head: EpsilonGreedy, legal: NDArray[np.bool_], num_actions: int) -> None:
        self.num_outputs = head.num_outputs
        self._head, self._legal = head, checked(legal, num_actions, [slice(0, num_actions)])
        self._count = self._legal.sum(1)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed legal actions, and their log probabilities."""
        return self._random(rng), -np.log(self._count).astype(np.float32)

    def mode(self, output: Floats) -> NDArray[np.int64]:
        """The best legal action of each row; the first of equally good ones."""
        best: NDArray[np.int64] = np.where(self._legal, self._head.values(output), -np.inf).argmax(1)
        return best

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """A legal action for each row, from ``[N]`` uniform numbers and then ``[N]`` random legal actions."""
        best, epsilon = self.mode(output), self._head.epsilon(len(output), place)
        explores = rng.random(len(output)) < epsilon
        action = np.where(explores, self._random(rng), best)
        if not log_prob:
            return action, None
        density = epsilon / self._count + (1.0 - epsilon) * (action == best)
        return action, np.log(density).astype(np.float32)

    def _random(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A uniformly random legal action of each row: the one that has ``k`` legal ones before it."""
        k = rng.integers(0, self._count)
        found: NDArray[np.int64] = (self._legal.cumsum(1) > k[:, None]).argmax(1)
        return found


class MaskRows:
    """The action masks of a rollout, as they are gathered step by step.

    Args:
        first: ``[N, A]``, of the observations before the first step.
    """

    def __init__(self, first: NDArray[np.bool_]) -> None:
        self._masks = [first]
        self._finals = [first[:0]]

    def add(self, info: Mapping[str, Any], ended: NDArray[np.bool_]) -> None:
        """Append the masks ``[N, A]`` after a step, and those of the episodes that have ``ended`` ``[N]``."""
        self._masks.append(info["action_mask"])
        if "final_action_mask" in info:
            self._finals.append(info["final_action_mask"][ended])

    def arrays(self) -> dict[str, NDArray[np.bool_]]:
        """The arrays of the rollout."""
        return {"action_mask": np.stack(self._masks), "final_action_mask": np.concatenate(self._finals)}


def mask_rows(given: Any, num: int) -> NDArray[np.bool_]:
    """The masks ``[N, A]`` of ``num`` observations, as an environment or a batch of them gives them: those of
    several discrete actions may have an axis for the choices of each.

    Raises:
        InputError: they are no arrays of 0 and 1.
    """
    try:
        flags = np.asarray(given)
        rows = flags.reshape(num, -1) if num == 1 or (flags.ndim > 2 and len(flags) == num) else flags
        fits = rows.dtype.kind in "biuf" and bool(((rows == 0) | (rows == 1)).all())
    except (ValueError, TypeError, RuntimeError):  # lists of different lengths, or a tensor on a device
        fits = False
    if not fits:
        raise InputError(f"the action_mask is {given!r:.80}, expected an array of 0 and 1")
    return np.atleast_2d(rows != 0)


def illegal(action: NDArray[Any], masks: NDArray[np.bool_], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The place among ``[...]`` of the first action that its mask forbids; None where each is legal.

    Args:
        action: ``[..., *action_shape]``, from 0 on.
        masks: ``[..., A]``.
        sizes: number of choices of each discrete action.
    """
    leading = masks.shape[:-1]
    chosen = action.reshape(*leading, -1) + np.cumsum((0, *sizes[:-1]))
    allowed = np.take_along_axis(masks, chosen, -1).all(-1)
    return None if allowed.all() else tuple(map(int, np.unravel_index(int(allowed.argmin()), leading)))


def checked(legal: NDArray[np.bool_], num: int, parts: Sequence[slice]) -> NDArray[np.bool_]:
    """The flags, once each row allows a choice of every discrete action; raises as the classes here do."""
    if legal.ndim != 2 or legal.shape[1] != num:
        raise ValueError(f"the action_mask has the shape {legal.shape}, expected (N, {num})")
    for part in parts:
        allowed = legal[:, part].any(1)
        if not allowed.all():
            row = int(allowed.argmin())
            flags = legal[row].astype(int).tolist()
            raise InputError(f"the action_mask of row {row} allows no action: {flags}")
    return legal
