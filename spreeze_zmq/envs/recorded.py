"""Whole episodes of one environment as it gives them itself, before its engine adapts anything."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.masks import NAME, mask_path
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines.fitting import time_limit
from spreeze_zmq.envs.failures import TOLERATED, Failures, close
from spreeze_zmq.envs.in_process import EngineChoice, choose
from spreeze_zmq.envs.same import check_same
from spreeze_zmq.envs.spec import EnvironmentSpec


@dataclass
class OwnEpisode:
    """One whole episode.

    Attributes:
        observations: ``L + 1`` of the environment's own space.
        actions: ``L``, likewise.
        rewards: ``L``.
        terminated: whether it ended, and was not cut.
        masks: ``L + 1`` action masks of infos; empty where they are in the observations, or none is used.
    """

    observations: list[Any]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    masks: list[Any] = field(default_factory=list)

    def stacked(self, name: str) -> Any:
        """``observations``, ``actions`` or ``masks`` as arrays of all steps, in Dicts and Tuples alike."""
        return _stacked(getattr(self, name))


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {key: _stacked([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked([value[place] for value in values]) for place in range(len(first)))
    return np.stack([np.asarray(value) for value in values])


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps what an environment gives, and hands on each episode that ends by itself, once the next one
    begins: an environment whose last step the batch refuses is closed instead.

    Args:
        env: the environment.
        keep: called with each whole episode; one in which the environment fails is forgotten.
        masked: whether action masks of its infos are kept, too.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], keep: Callable[[OwnEpisode], object], *, masked: bool = False
    ) -> None:
        super().__init__(env)
        self._keep, self._masked = keep, masked and not mask_path(env.observation_space)
        self._episode: OwnEpisode | None = None
        self._is_whole = False

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment's."""
        if self._episode is not None and self._is_whole:
            self._keep(self._episode)
        self._episode, self._is_whole = None, False
        obs, info = self.env.reset(**options)
        self._episode = OwnEpisode([copy.deepcopy(obs)])
        self._episode.masks += self._mask(info)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment's."""
        episode, self._episode = self._episode, None
        given = copy.deepcopy(action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        if episode is not None:
            episode.observations.append(copy.deepcopy(obs))
            episode.actions.append(given)
            episode.rewards.append(float(reward))
            episode.terminated = bool(terminated)
            episode.masks += self._mask(info)
            self._episode, self._is_whole = episode, bool(terminated or truncated)
        return obs, reward, terminated, truncated, info

    def _mask(self, info: Any) -> list[Any]:
        """That of one step, if there is one to keep: the batch refuses a step that lacks it."""
        return (
            [copy.deepcopy(info[NAME])] if self._masked and isinstance(info, Mapping) and NAME in info else []
        )


def _one_by_one(spec: EnvironmentSpec) -> EngineChoice:
    """Makes Gymnasium's own environment, though a faster engine steps it as a whole batch elsewhere.

    Raises:
        InvalidEnvironment: there is none.
    """
    with contextlib.suppress(InvalidEnvironment):
        return choose(spec.id, spec.kwargs, "gymnasium")
    reason = choose(spec.id, spec.kwargs).reason
    raise InvalidEnvironment(
        f"{spec.id} is stepped as a whole batch ({reason}), which keeps no single steps: name a Gymnasium "
        "environment that does the same"
    )


def recorded(
    spec: EnvironmentSpec, keep: Callable[[OwnEpisode], object]
) -> tuple[BatchedEnv, gymnasium.Env[Any, Any]]:
    """A batch of one environment, in this process, whose own whole episodes are kept; and the environment.

    Raises:
        InvalidEnvironment: it cannot be made, only whole batches of it are, or it has other spaces than the
            spec.
    """
    from spreeze_zmq.envs.engines.gymnasium_loop import GymnasiumLoop

    choice = _one_by_one(spec)
    made: list[gymnasium.Env[Any, Any]] = []

    def make_one(row: int) -> gymnasium.Env[Any, Any]:
        """The environment, or another one in its place after it has failed."""
        env, most = choice.make_one(row), spec.max_episode_steps
        if most is not None and most != time_limit(env):  # else it ends by itself, or goes on, as in a run
            env = TimeLimit(env, most)
        made.append(env)
        return Recorder(env, keep, masked=spec.action_mask)

    batch = GymnasiumLoop(spec.id, make_one, 1, 0, False, action_mask=spec.action_mask)
    batch.failures = Failures(TOLERATED)
    try:
        check_same(spec, batch)
    except InvalidEnvironment:
        close(batch)
        raise
    return batch, made[0]
