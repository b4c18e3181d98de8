"""What a replay keeps of each episode once it has ended, beside its transitions as they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout, odd_number
from spreeze_zmq.envs.packed import Packing
from spreeze_zmq.replay.episodes import MASK, Episode, EpisodeBuilder, Transitions
from spreeze_zmq.replay.hindsight import Goals
from spreeze_zmq.replay.reward_scale import ReturnScale

#: As ``Algorithm.relabel``: all transitions of an episode, and the episode, to those to keep; None for none.
Relabel = Callable[[Transitions, Episode], "Transitions | None"]
Rows = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Relabelling:
    """How the episodes of a replay are relabelled.

    Attributes:
        relabel: the algorithm's; what it returns fits (:func:`misfit`).
        goals: of the environment; None where its observation is no goal Dict.
        seed: of the random numbers.
        breathe: called after each episode, of which many may end at once.
    """

    relabel: Relabel
    goals: Goals | None
    seed: int
    breathe: Callable[[], object] = lambda: None


class Relabeller:
    """Makes rows of a replay's table of the episodes that end.

    Args:
        how: it relabels.
        gamma: discount of one step.
        n_step: largest number of rewards summed.
        more: further arrays of the rollouts that are kept.
        drawn: gives observations of any transitions in the replay, for rows of the table.
        scale: counts what they pay; None where rewards are not divided.

    Attributes:
        num_episodes: that have ended; with the seed it gives each episode its random numbers.
    """

    def __init__(
        self,
        how: Relabelling,
        gamma: float,
        n_step: int,
        more: Sequence[str],
        drawn: Callable[[NDArray[np.float64]], NDArray[Any]],
        scale: ReturnScale | None = None,
    ) -> None:
        self._scale = scale
        self._how, self._gamma, self._n_step = how, gamma, n_step
        self._episodes, self._drawn = EpisodeBuilder(more), drawn
        self.num_episodes = 0

    def state(self) -> dict[str, Any]:
        """The episodes that go on, as tensors; for a run whose samplers go on in them."""
        found: dict[str, Any] = _each(self._episodes.state(), torch.from_numpy)
        return found

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self._episodes.restore(_each(state, lambda tensor: tensor.numpy()))

    def rows(self, rollout: Rollout) -> Iterator[Rows]:
        """``[M, ...]`` each for every episode that ends in a rollout: ``obs``, ``action``, ``next_obs``,
        ``reward``, ``discount`` and further arrays.
        """
        for ended in self._episodes.ended(rollout):
            rng = np.random.default_rng((self._how.seed, self.num_episodes))
            self.num_episodes += 1
            sound = ended.without_failed_step()
            if not len(sound):
                continue
            episode = replace(sound, goals=self._how.goals, rng=rng, drawn=self._drawing(rng))
            kept = self._how.relabel(Transitions.of(episode, self._n_step), episode)
            if kept is not None and len(kept):
                if self._scale is not None:
                    self._scale.count(kept.sizes(self._gamma))
                reward, discount = kept.summed(self._gamma)
                own = {"obs": kept.obs, "action": kept.action, "next_obs": kept.next_obs}
                yield {**own, "reward": reward, "discount": discount, **_some_legal(kept.more)}
            self._how.breathe()

    def _drawing(self, rng: np.random.Generator) -> Callable[[int], NDArray[Any]]:
        return lambda count: self._drawn(rng.random(count))


def _each(value: Any, convert: Callable[[Any], Any]) -> Any:
    """The same maps and lists with every array converted."""
    if isinstance(value, Mapping):
        return {name: _each(item, convert) for name, item in value.items()}
    return [_each(item, convert) for item in value] if isinstance(value, list) else convert(value)


def _some_legal(more: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Further arrays, with all actions legal where none is: with other goals an end may be none."""
    found = dict(more)
    if (name := f"next_{MASK}") in found:
        found[name] = found[name] | ~found[name].any(1, keepdims=True)
    return found


def misfit(given: Transitions, returned: Any, packing: Packing | None = None) -> str:
    """Why what a relabelling returned for ``given`` cannot be kept, in words; empty if it can. It may have
    any number of rows; every array has as many, of the shape and dtype that it had. Observations with a
    ``packing`` have pixels and choices where they had them.
    """
    if returned is None:
        return ""
    if not isinstance(returned, Transitions):
        return (
            f"returned a {type(returned).__name__}, expected transitions such as batch._replace(...), or None"
        )
    before, after = ({**vars(each), **each.more} for each in (given, returned))
    rows = np.shape(after["obs"])[:1]
    for name in before.keys() - {"more"}:
        array, old = after.get(name), before[name]
        shape = (*rows, *old.shape[1:])
        if not isinstance(array, np.ndarray) or array.shape != shape:
            got = (
                f"of shape {array.shape}" if isinstance(array, np.ndarray) else f"as a {type(array).__name__}"
            )
            return f"returned {name} {got}, expected an array of shape {shape}"
        if not np.can_cast(array.dtype, old.dtype, "same_kind"):
            return f"returned {name} of {array.dtype}, expected {old.dtype}"
        odd = odd_number(array)
        if packing is not None and name in ("obs", "next_obs"):
            odd = odd or packing.odd_entry(array)
        if odd:
            return f"returned {name} with {odd}"
    return ""
