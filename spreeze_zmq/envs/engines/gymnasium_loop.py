"""Any Gymnasium environment, in a lean loop that writes into one batch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.wrappers import FlattenObservation, TimeLimit, TransformAction
from numpy.typing import NDArray

from spreeze_zmq.envs.batched import BatchedEnv, Step
from spreeze_zmq.errors import InvalidEnvironment


class GymnasiumLoop(BatchedEnv):
    """``num_envs`` environments, stepped one after the other.

    The batch applies the time limit of each environment's outermost ``TimeLimit``, which is removed.
    ``fitted`` adapts observations and actions.

    Args:
        env_id: name in messages.
        make_one: makes one environment.
        num_envs: number of environments.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether to gather the environments' infos, which may cost more than the step; ``"final"``
            gathers only those of the last steps of episodes.
        on_tick: called after each environment that is made, reset or stepped.

    Attributes:
        at: ``[1]`` int64: the environment that is being stepped; a worker replaces it by shared memory.

    Raises:
        InvalidEnvironment: the environment cannot be made, or its observations have no fixed size.
    """

    backend = "gymnasium"

    def __init__(
        self,
        env_id: str,
        make_one: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        step_info: bool | Literal["final"],
        on_tick: Callable[[], None] = lambda: None,
    ):
        self._make_one, self._step_info = make_one, step_info
        unfitted = []
        for _ in range(num_envs):
            unfitted.append(make_one())
            on_tick()
        self.envs = [fitted(env_id, without_limit(env)) for env in unfitted]
        one, limit = unfitted[0], time_limit(unfitted[0])
        spaces = self.envs[0].observation_space, self.envs[0].action_space
        own_limit = limit if isinstance(one, TimeLimit) else None
        super().__init__(env_id, num_envs, *spaces, own_limit, seed, limit)
        self.own_spaces = one.observation_space, one.action_space
        self.on_tick = on_tick
        self.spec, self.render_mode = one.spec, one.render_mode
        self.metadata = {**one.metadata, **type(self).metadata}
        self._steps = [env.step for env in self.envs]
        self.at = np.zeros(1, np.int64)
        self._obs_dtype: Any = spaces[0].dtype
        self._obs_shape = spaces[0].shape or ()

    def _advance(self, actions: NDArray[Any]) -> Step:
        num_envs = self.num_envs
        obs = np.empty((num_envs, *self._obs_shape), self._obs_dtype)
        reward = np.empty(num_envs)
        terminated, truncated = np.empty(num_envs, np.bool_), np.empty(num_envs, np.bool_)
        info: dict[str, Any] = {}
        gather = self._step_info is True
        last = self._length >= self._limit if self._step_info == "final" else None
        at = self.at
        if self._stepping is not None:  # the others stay where they are
            assert self._last_obs is not None
            obs[:], reward[:], terminated[:], truncated[:] = self._last_obs, 0.0, False, False
        for row in range(num_envs) if self._stepping is None else self._stepping.tolist():
            at[0] = row
            try:
                obs[row], reward[row], terminated[row], truncated[row], one = self._steps[row](actions[row])
                ends = last is not None and (last[row] or terminated[row] or truncated[row])
                if one and (gather or ends):
                    info = self._add_info(info, one, row)
            except Exception as error:
                obs[row], reward[row], terminated[row], truncated[row] = 0, 0.0, False, False
                self._raised(row, "step", error)
            self.on_tick()
        return obs, reward, terminated, truncated, info

    def _restart(
        self, rows: NDArray[np.intp], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        first = np.empty((len(rows), *self._obs_shape), self._obs_dtype)
        info: dict[str, Any] = {}
        for k, row in enumerate(rows.tolist()):
            self.at[0] = row
            first[k], reset_info = self._reset_one(row, seeds[k], options)
            if self._step_info is True and reset_info:
                info = self._add_info(info, reset_info, row)
            self.on_tick()
        return first, info

    def _reset_one(
        self, row: int, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset one environment; if it raises, replace it and try another seed."""
        while True:
            try:
                obs, info = self.envs[row].reset(seed=seed, options=options)
                if np.shape(obs) != self._obs_shape:
                    raise ValueError(f"an observation of shape {np.shape(obs)}, not {self._obs_shape}")
                return obs, info
            except Exception as error:
                self._raised(row, "reset", error)
                seed = self._repair(row)
                self._failed.discard(row)

    def _replace(self, row: int) -> None:
        with contextlib.suppress(Exception):  # a broken environment may raise in closing too
            self.envs[row].close()
        self.envs[row] = fitted(self.env_id, without_limit(self._make_one()))
        self._steps[row] = self.envs[row].step

    def render(self) -> tuple[Any, ...]:
        """One frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method (or read an attribute) of each environment."""
        values = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def close_extras(self, **kwargs: Any) -> None:
        """Close each environment."""
        for env in self.envs:
            env.close()


def without_limit(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment inside an outermost ``TimeLimit``."""
    return env.env if isinstance(env, TimeLimit) else env


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Steps after which the outermost ``TimeLimit`` among the wrappers truncates; ``None`` without one."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None


def fitted(env_id: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment, wrapped if needed, with Box observations and discrete actions that count from 0.

    Other observations (a Dict or Tuple of Boxes and Discretes, a bare Discrete) are flattened to one vector
    by ``gymnasium.spaces.flatten``: the parts in order, discrete ones as one-hot.

    Raises:
        InvalidEnvironment: the environment has no spaces, or its observations have no fixed size.
    """
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            raise InvalidEnvironment(f"{env_id}: it has no {name} (set self.{name} in its __init__)")
    observation, action = env.observation_space, env.action_space
    if not isinstance(observation, Box):
        if not observation.is_np_flattenable:
            raise InvalidEnvironment(
                f"{env_id}: its observations are a {type(observation).__name__}, which does not flatten to a"
                " vector of fixed size (convert them with gymnasium.wrappers.TransformObservation)"
            )
        env = FlattenObservation(env)
    if isinstance(action, Discrete | MultiDiscrete) and np.any(action.start):
        start, shifted = action.start, copy.deepcopy(action)
        shifted.start = start * 0
        env = TransformAction(env, lambda choice: choice + start, shifted)
    return env
