"""Goal environments, whose observation is a Dict with the goal that is wanted and the one that is reached:
where these are in the flattened vector, and what the environment pays for a goal that it did not ask for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment, definition_of, in_one_line, is_users, place_of
from spreeze_zmq.base.rollout import odd_number
from spreeze_zmq.envs.settings import called

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
#: The parts that make an observation that of a goal environment; what else is in it may have any name.
GOAL_PARTS = frozenset({ACHIEVED, DESIRED})
#: Names of what :func:`goal_facts` finds.
LACK, DIFFER = "goals_lack", "goals_differ"
#: Rewards of the environment and of ``compute_reward`` may differ by this, as observations are rounded.
ROUNDING = 1e-3
#: Goals that are asked about one at a time before a breath.
A_BREATH = 100


@dataclass(frozen=True)
class GoalPlaces:
    """Where the goals are in a flattened observation."""

    achieved: slice
    desired: slice


def is_goal_dict(parts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an observation of these ``obs_parts`` is a goal environment's."""
    return {part["path"][0] for part in parts if part.get("path")} >= GOAL_PARTS


def goal_places(parts: Sequence[Mapping[str, Any]]) -> GoalPlaces:
    """Where the goals are.

    Args:
        parts: of the observation, as :func:`spreeze_zmq.envs.forms.obs_parts` describes them.

    Raises:
        InvalidEnvironment: there are none, or they are no vectors of one shape.
    """
    found: dict[str, tuple[slice, tuple[int, ...]]] = {}
    start = 0
    for part in parts:
        size = sum(part["sizes"]) if "sizes" in part else int(np.prod(part["shape"]))
        if "sizes" not in part and len(part["path"]) == 1:
            found[str(part["path"][0])] = slice(start, start + size), tuple(part["shape"])
        start += size
    missing = [name for name in (ACHIEVED, DESIRED) if name not in found]
    if missing:
        names = ", ".join(".".join(map(str, part["path"])) or "one part" for part in parts)
        own = f"this environment's observations are {f'a Dict of {names}' if parts else 'a Box'}"
        raise InvalidEnvironment(
            f"goals are relabelled in a Dict with a Box {ACHIEVED} and a Box {DESIRED}, {own}"
        )
    (achieved, shape), (desired, wanted) = found[ACHIEVED], found[DESIRED]
    if shape != wanted:
        raise InvalidEnvironment(
            f"{ACHIEVED} has the shape {list(shape)} and {DESIRED} {list(wanted)}: "
            "one cannot take the other's place"
        )
    return GoalPlaces(achieved, desired)


class GoalRewards:
    """What an environment pays for goals, and whether an episode ends there.

    It asks ``compute_reward(achieved, desired, info)`` and, if there is one, ``compute_terminated``, both
    with an empty ``info``, and with many goals at once where that gives what one at a time does.

    Args:
        env: a Gymnasium environment whose observations are a Dict, after a reset.
        name: of it, for messages.
        breathe: called again and again while many goals are asked about one at a time.

    Attributes:
        in_batches: whether ``compute_reward`` takes many goals at once.
        each_s: about how long one goal takes, of a few, s.
        ends: whether there is a ``compute_terminated``.

    Raises:
        InvalidEnvironment: it has no ``compute_reward``, or that fails; names the user's file and line.
    """

    def __init__(self, env: Any, name: str, breathe: Callable[[], object] = lambda: None) -> None:
        self._breathe = breathe
        self._name, self._space = name, env.observation_space[DESIRED]
        if not env.has_wrapper_attr("compute_reward"):
            raise InvalidEnvironment(
                f"{name}: it has no compute_reward(achieved_goal, desired_goal, info), which says what "
                "another goal would have paid"
            )
        self._reward: Callable[..., Any] = env.get_wrapper_attr("compute_reward")
        self.ends = env.has_wrapper_attr("compute_terminated")
        self._terminated = env.get_wrapper_attr("compute_terminated") if self.ends else None
        goals = self._some()
        self.in_batches = self._takes_batches(self._reward, goals)
        self._ends_in_batches = self.ends and self._takes_batches(self._terminated, goals)
        began_s = time.perf_counter()
        self.reward(goals, goals[::-1])
        if self.ends:
            self.terminated(goals, goals[::-1])
        self.each_s = (time.perf_counter() - began_s) / len(goals)

    def reward(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """``[M]``: the rewards for goals ``[M, size]``. Raises InvalidEnvironment."""
        found = self._called("compute_reward", self._reward, self.in_batches, achieved, desired)
        rewards = found.astype(np.float32)
        if odd := odd_number(rewards):
            raise InvalidEnvironment(f"{self._name}: compute_reward gave {odd}")
        return rewards

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_]:
        """``[M]``: whether an episode ends at goals ``[M, size]``. Raises InvalidEnvironment."""
        batches = self._ends_in_batches
        found = self._called("compute_terminated", self._terminated, batches, achieved, desired)
        return found.astype(np.bool_)

    def _called(
        self, what: str, function: Any, in_batches: bool, achieved: NDArray[Any], desired: NDArray[Any]
    ) -> NDArray[Any]:
        pair = [self._own(goals) for goals in (achieved, desired)]

        def one_by_one(some: Sequence[NDArray[Any]]) -> list[Any]:
            return [function(*both, {}) for both in zip(*some, strict=True)]

        found: Any = [] if not in_batches else self._asked(what, function, partial(function, *pair, {}))
        for first in range(0, len(achieved), A_BREATH) if not in_batches else ():
            some = [goals[first : first + A_BREATH] for goals in pair]
            found += self._asked(what, function, partial(one_by_one, some))
            self._breathe()
        array = np.asarray(found)
        if array.shape != (len(achieved),) or array.dtype.kind not in "biuf":
            got = f"an array of shape {array.shape}" if in_batches else f"{found[:1]!r:.60}"
            raise InvalidEnvironment(
                f"{self._name}: {what} returned {got}, expected one number for each goal"
            )
        return array

    def _asked(self, what: str, function: Any, ask: Callable[[], Any]) -> Any:
        """What the environment's ``function`` gives when ``ask`` calls it. Raises InvalidEnvironment."""
        try:
            return called(ask)
        except Exception as error:
            place = place_of(error)
            if not is_users(place.rpartition(":")[0]):  # the call was refused
                place = definition_of(function) or place
            raise InvalidEnvironment(f"{self._name}: {place}: {what} raised {in_one_line(error)}") from error

    def _own(self, goals: NDArray[Any]) -> NDArray[Any]:
        """Flattened goals ``[M, size]`` in the environment's own shape and dtype."""
        own: NDArray[Any] = goals.astype(self._space.dtype).reshape(len(goals), *self._space.shape)
        return own

    def _some(self) -> NDArray[np.float64]:
        """Some goals, whose number is none of the shape's."""
        size = int(np.prod(self._space.shape))
        return np.linspace(-1.0, 1.0, (3 if size != 3 else 5) * size).reshape(-1, size)

    def _takes_batches(self, function: Any, goals: NDArray[np.float64]) -> bool:
        """Whether a function gives for many goals what it gives for each."""
        first, second = self._own(goals), self._own(goals[::-1])
        try:
            each = [function(*both, {}) for both in zip(first, second, strict=True)]
            together = np.asarray(function(first, second, {}))
            return together.shape == (len(goals),) and bool(
                np.allclose(together, np.asarray(each, np.float64))
            )
        except Exception:
            return False


class NoRewards:
    """Stands for the rewards of an environment that does not say what a goal would have paid.

    Args:
        why: it does not.
    """

    ends = False

    def __init__(self, why: str) -> None:
        self._why = why

    def reward(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """Raises InvalidEnvironment."""
        raise InvalidEnvironment(self._why)

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_]:
        """Raises InvalidEnvironment."""
        raise InvalidEnvironment(self._why)


def goal_facts(batch: Any, env_id: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What is odd about a goal environment, after a step of it; empty for others and where nothing is.

    Args:
        batch: of one environment, between two steps.
        env_id: its name.
        parts: of its observation.

    Returns:
        Under ``LACK`` why goals cannot be relabelled, under ``DIFFER`` that it pays otherwise than by
        ``compute_reward``, in words.
    """
    if not is_goal_dict(parts) or not getattr(batch, "envs", ()):
        return {}
    try:
        places, rewards = goal_places(parts), GoalRewards(batch.envs[0], env_id)
        obs, paid, terminated, truncated, info = batch.step(batch.action_space.sample())
        row = info["final_obs"] if terminated[0] or truncated[0] else obs
        told = rewards.reward(row[:1, places.achieved], row[:1, places.desired])[0]
    except InvalidEnvironment as error:
        return {LACK: str(error)}
    if abs(float(told) - float(paid[0])) <= ROUNDING * max(1.0, abs(float(told))):
        return {}
    return {DIFFER: f"step() paid {float(paid[0]):g} where compute_reward gives {float(told):g}"}
