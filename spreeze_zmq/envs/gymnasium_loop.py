"""Any Gymnasium environment: a lean loop in this process that writes into one batch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from .batched import BatchedEnv, Step
from .source import Source


class GymnasiumLoop(BatchedEnv):
    """``num_envs`` environments of ``gymnasium.make`` semantics, stepped one after the other.

    The checking wrappers are left out, and an outermost time limit is kept for all of them in one array.

    Args:
        source: where the environments come from.
        kwargs: arguments of each one's constructor.
        num_envs: how many.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether to gather the infos of the environments' steps, which costs more than many a step.

    Raises:
        InvalidEnvironment: the environment cannot be made.
    """

    backend = "gymnasium"

    def __init__(self, source: Source, kwargs: Mapping[str, Any], num_envs: int, seed: int, step_info: bool):
        self._source, self._kwargs = source, kwargs
        self.envs: list[gymnasium.Env[Any, Any]] = []
        for _ in range(num_envs):
            first = source.make_one(kwargs)
            self.envs.append(_without_limit(first))
        limit = time_limit(first)
        super().__init__(
            source.env_id,
            num_envs,
            first.observation_space,
            first.action_space,
            limit if isinstance(first, TimeLimit) else None,
            seed,
            limit,
        )
        self.spec = first.spec
        self.render_mode = first.render_mode
        self.metadata = {**first.metadata, **type(self).metadata}
        self._step_info = step_info
        self._steps = [env.step for env in self.envs]
        #: The environment that is being stepped, for whoever watches from outside.
        self.at = np.zeros(1, np.int64)
        space = first.observation_space
        self._obs_dtype = space.dtype if isinstance(space, Box) else np.dtype(object)
        self._obs_shape = space.shape if isinstance(space, Box) else ()

    def _advance(self, actions: NDArray[Any]) -> Step:
        num_envs = self.num_envs
        obs = np.empty((num_envs, *self._obs_shape), self._obs_dtype)
        reward = np.empty(num_envs)
        terminated, truncated = np.empty(num_envs, np.bool_), np.empty(num_envs, np.bool_)
        info: dict[str, Any] = {}
        gather = self._step_info
        at = self.at
        for row, step in enumerate(self._steps):
            at[0] = row
            try:
                obs[row], reward[row], terminated[row], truncated[row], one = step(actions[row])
                if gather and one:
                    info = self._add_info(info, one, row)
            except Exception as error:
                obs[row], reward[row], terminated[row], truncated[row] = 0, 0.0, False, False
                self._raised(row, "step", error)
        return obs, reward, terminated, truncated, info

    def _restart(
        self, rows: NDArray[np.intp], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        first = np.empty((len(rows), *self._obs_shape), self._obs_dtype)
        info: dict[str, Any] = {}
        for k, row in enumerate(rows.tolist()):
            self.at[0] = row
            first[k], begun = self._reset_one(row, seeds[k], options)
            if self._step_info and begun:
                info = self._add_info(info, begun, row)
        return first, info

    def _reset_one(
        self, row: int, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset one environment, which is rebuilt where that raises."""
        while True:
            try:
                obs, info = self.envs[row].reset(seed=seed, options=options)
                if self._obs_shape and np.shape(obs) != self._obs_shape:
                    raise ValueError(f"an observation of shape {np.shape(obs)}, not {self._obs_shape}")
                return obs, info
            except Exception as error:
                self._raised(row, "reset", error)
                seed = self._anew(row)
                self._failed.discard(row)

    def _mend(self, row: int) -> None:
        """Put a new environment into the place of one that failed."""
        with contextlib.suppress(Exception):  # what is broken may break in closing too
            self.envs[row].close()
        self.envs[row] = _without_limit(self._source.make_one(self._kwargs))
        self._steps[row] = self.envs[row].step

    def render(self) -> tuple[Any, ...]:
        """One frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method (or read an attribute) of each environment."""
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in found)

    def close_extras(self, **kwargs: Any) -> None:
        """Close each environment."""
        for env in self.envs:
            env.close()


def _without_limit(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env.env if isinstance(env, TimeLimit) else env


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """The number of steps after which one of an environment's wrappers truncates an episode."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None
