"""Episodes of a dataset as rollouts of one environment, checked against the environment of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.masks import NAME, mask_in
from spreeze_zmq.base.rollout import Rollout, odd_number
from spreeze_zmq.data.dataset import Dataset
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.policy.legal import checked, illegal, mask_rows
from spreeze_zmq.policy.own_environment import ObservationPart

#: Actions this share of their range outside it have been rounded.
ROUNDING = 1e-4


@dataclass
class Outside:
    """The actions of a dataset that lie outside the bounds of the environment by more than rounding, counted
    as they are read and clipped.
    """

    num: int = 0
    num_read: int = 0
    first: float = 0.0

    def take(self, action: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> None:
        """Count in the actions ``[T, *action_shape]`` of an episode."""
        room = ROUNDING * (high.astype(np.float64) - low)
        found = (action < low - room) | (action > high + room)
        if found.any() and not self.num:
            self.first = float(action[found][0])
        self.num += int(found.reshape(len(action), -1).any(1).sum())
        self.num_read += len(action)

    @property
    def said(self) -> str:
        """In words; empty if there is none."""
        if not self.num:
            return ""
        share = f"{self.num / self.num_read:.1%} of its actions"
        return (
            f"recorded with {share} outside run.env's bounds, which clip them (the first is {self.first:g})"
        )


def rollouts_of(
    dataset: Dataset,
    env: EnvironmentSpec,
    name: str,
    most: int | None = None,
    stack: int = 1,
    outside: Outside | None = None,
) -> Iterator[Rollout]:
    """A rollout for each episode with a step, ``N = 1``, which ends with it: what no flag ends is truncated.

    Args:
        dataset: of the environment's own observations and actions.
        env: of the run; actions are clipped to its bounds.
        name: the rollouts say that they come from ``data-NAME``.
        most: episodes that are read; all by default.
        stack: observations that networks take at once.
        outside: counts the actions that are clipped.

    Raises:
        InputError: an episode is damaged, of other spaces, or holds a number that is not finite.
    """
    for number, episode in enumerate(dataset.episodes(most)):
        try:
            made = _rollout(episode, env, f"data-{name}", number, stack, outside or Outside())
        except InputError as error:
            raise InputError(f"episode {number}: {error}") from None
        if made is not None:
            yield made


def _rollout(
    episode: Any, env: EnvironmentSpec, sampler: str, number: int, stack: int, outside: Outside
) -> Rollout | None:
    reward = _numbers(episode.rewards, "rewards", (), "float32")
    steps = len(reward)
    obs, action = _observations(episode.observations, env), _actions(episode.actions, env, outside)
    flags = [np.array(each, np.bool_) for each in (episode.terminations, episode.truncations)]
    wanted = (steps + 1, steps, steps, steps)
    if (lengths := (len(obs), len(action), *map(len, flags))) != wanted:
        got = "{} observations, {} actions, {} terminations and {} truncations".format(*lengths)
        raise InputError(f"it has {steps} rewards and {got}; expected one more observation than rewards")
    if not steps:
        return None
    terminated, truncated = flags
    if (terminated | truncated)[:-1].any():
        at = int((terminated | truncated).argmax())
        raise InputError(f"it goes on after step {at}, which has ended it")
    truncated[-1] |= not terminated[-1]
    masks = _masks(episode, env, action, terminated=bool(terminated[-1])) if env.action_mask else {}
    return Rollout(
        sampler,
        *(1 + number, 0, steps, 0, steps, 1),
        obs=obs[:, None],
        action=action[:, None],
        reward=reward[:, None],
        terminated=terminated[:, None],
        truncated=truncated[:, None],
        final_obs=obs[-1:],
        final_index=np.array([[steps - 1, 0]], np.int32),
        history=np.repeat(obs[:1, None], stack - 1, 0) if stack > 1 else None,
        **masks,
    )


def _observations(given: Any, env: EnvironmentSpec) -> NDArray[Any]:
    """``[T + 1, *obs_shape]`` of the environment's own observations, flattened as its engine does: of uint8
    alone to uint8.
    """
    if env.obs_parts:
        try:
            given = np.concatenate(
                [ObservationPart.described(part).rows(given) for part in env.obs_parts], -1
            )
        except (InputError, KeyError, ValueError) as error:
            raise InputError(f"its observations are not those of {env.id}: {error}") from None
        with np.errstate(invalid="ignore"):
            exact = given.astype(env.obs_dtype, copy=False)
        given = exact if np.array_equal(exact, given) else given
    return _numbers(given, "observations", env.obs_shape, env.obs_dtype, env.id)


def _actions(given: Any, env: EnvironmentSpec, outside: Outside) -> NDArray[Any]:
    """``[T, *action_shape]`` in the units of a rollout."""
    if env.action_kind == "box":
        action = _numbers(given, "actions", env.action_shape, "float32", env.id)
        low, high = env.action_low, env.action_high
        if low is None or high is None:
            return action
        outside.take(action, low, high)
        return action.clip(low, high)
    action = _numbers(given, "actions", env.action_shape, "int64", env.id)
    if env.action_start:
        action = action - np.reshape(env.action_start, env.action_shape)
    if ((action < 0) | (action >= np.reshape(env.action_sizes, env.action_shape))).any():
        raise InputError(f"its actions are not all among the {list(env.action_sizes)} of {env.id}")
    return action


def _masks(episode: Any, env: EnvironmentSpec, action: NDArray[Any], *, terminated: bool) -> dict[str, Any]:
    """The ``action_mask`` ``[T + 1, 1, A]`` and ``final_action_mask`` ``[1, A]`` of a rollout, from the
    observations or the infos; after a step that ``terminated`` no action need be legal.
    """
    steps, given = len(action), mask_in(episode.observations)
    given = mask_in(episode.infos) if given is None else given
    if given is None:
        hint = "spreeze record keeps them, and Minari's DataCollector with record_infos=True"
        raise InputError(f"it has no {NAME}, which {env.id} gives ({hint})")
    ends = np.cumsum(env.action_sizes)
    parts = [slice(end - size, end) for end, size in zip(ends, env.action_sizes, strict=True)]
    try:
        legal = mask_rows(given, steps + 1)
    except InputError:  # it quotes them
        raise InputError(f"its {NAME} is no array of 0 and 1") from None
    try:
        if len(legal) != steps + 1:
            raise ValueError(f"it has {len(legal)} rows of {NAME}, expected {steps + 1}")
        checked(legal[:-1] if terminated else legal, env.num_choices, parts)
    except ValueError as error:
        raise InputError(str(error)) from None
    if (place := illegal(action, legal[:-1], env.action_sizes)) is not None:
        raise InputError(f"its action {action[place].tolist()} at {place[0]} is one that its {NAME} forbids")
    return {"action_mask": legal[:, None], "final_action_mask": legal[-1:]}


def _numbers(given: Any, what: str, shape: tuple[int, ...], dtype: str, env: str = "") -> NDArray[Any]:
    """``[L, *shape]`` of a dtype that holds every number."""
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty(0, object)
    whose = f", those of {env}" if env else ", expected"
    if array.dtype.kind not in "biuf":
        kind = type(given).__name__ if array.dtype.kind == "O" else str(array.dtype)
        raise InputError(f"its {what} are a {kind}{whose} {dtype} of the shape {shape}")
    if array.shape[1:] != shape:
        raise InputError(f"its {what} have the shape {array.shape[1:]}{whose} {shape}")
    if odd := odd_number(array):
        raise InputError(f"its {what} hold {odd}")
    if array.dtype.kind == "f" and dtype != "float32":
        raise InputError(f"its {what} are {array.dtype}{whose} {dtype}")
    if dtype == "uint8" and array.size and not 0 <= array.min() <= array.max() <= 255:
        raise InputError(f"its {what} are {array.min()} to {array.max()}{whose} {dtype}")
    return array.astype(dtype, copy=False)
