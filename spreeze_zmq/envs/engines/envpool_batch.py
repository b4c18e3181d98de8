"""EnvPool's environments, with same-step autoreset in place of EnvPool's steps that only reset."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment, in_one_line
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.base.schema import near_ones
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines.fitting import given_limit
from spreeze_zmq.envs.infos import Begun, Options, Seeds, Step

#: Pattern of the names of EnvPool's Atari games.
_ATARI = re.compile(r"[A-Z][A-Za-z]+-v5")
HOW_TO_INSTALL = "pip install 'spreeze_zmq[envpool]'"
#: EnvPool ends an episode at a number of steps, an int32: this one stands for no limit.
_NO_LIMIT = 2**31 - 1
#: Arguments of EnvPool that are set here.
_OWN_ARGUMENTS = ("num_envs", "batch_size", "seed", "env_seed", "max_num_players", "base_path")


class EnvPoolBatch(BatchedEnv):
    """``num_envs`` of EnvPool's environments, stepped by its threads.

    EnvPool resets an environment in an extra step after the one that ended its episode. Here the reset is
    part of the step that ended the episode, which returns the first observation of the next one. EnvPool's
    infos are not returned. Observations keep EnvPool's dtype. With ``batch_size`` below ``num_envs``, only
    ``send`` and ``recv`` step.

    Args:
        env_id: one of EnvPool's names.
        num_envs: number of environments.
        batch_size: number of environments that ``recv`` waits for: ``num_envs`` or a smaller divisor of it.
        seed: environment ``i`` is seeded with ``seed + i``.
        kwargs: fields of EnvPool's configuration; ``num_threads`` of them is its own by default. A
            ``max_episode_steps`` of -1 is no limit, as elsewhere.

    Raises:
        InvalidEnvironment: EnvPool is not installed, or cannot make the environment.
    """

    backend = "envpool"

    def __init__(self, env_id: str, num_envs: int, batch_size: int, seed: int, kwargs: Mapping[str, Any]):
        if reason := why_not(env_id):
            raise InvalidEnvironment(f"{env_id}: backend 'envpool' cannot do it: {reason}")
        if num_envs % batch_size:
            raise InvalidEnvironment(
                f"{env_id}: EnvPool's batch_size is num_envs ({num_envs}) or a divisor of it, not"
                f" {batch_size}"
            )
        self._kwargs = dict(kwargs)
        self.batch_size = batch_size
        self._first_seeds = [seed + i for i in range(num_envs)]
        self._pool = self._make_pool(env_id, num_envs, self._first_seeds)
        spec = self._pool.spec
        spaces = spec.observation_space, spec.action_space
        limit = int(spec.config.max_episode_steps)
        super().__init__(env_id, num_envs, *spaces, None, seed, None if limit == _NO_LIMIT else limit)
        self.batch_size = batch_size
        self._fresh = True
        # Steps to return: environment, observation, reward, terminated, truncated, true last observation.
        self._ready: list[tuple[int, Any, float, bool, bool, Any]] = []
        self._ending: dict[int, tuple[float, bool, bool, Any]] = {}  # the same of those being reset
        self._under_way = 0  # environments being stepped or reset
        self._idle_action = np.zeros(self._given.shape, self._given.dtype)

    def cut_after(self, steps: int) -> None:
        """As any batch does; in first-finished ones EnvPool resets no environment before its own limit.

        Raises:
            InvalidEnvironment: that limit is higher; names the argument that lowers it.
        """
        if self.batch_size < self.num_envs and steps < (self.episode_limit or steps + 1):
            self.close()
            raise InvalidEnvironment(
                f"{self.env_id}: EnvPool with batch_size={self.batch_size} of {self.num_envs} cuts no "
                f"episode at step_cap={steps}; give max_episode_steps={steps}, which it keeps itself"
            )
        super().cut_after(steps)

    def _make_pool(self, env_id: str, num_envs: int, seeds: Sequence[int]) -> Any:
        envpool = _envpool()
        wrong = [name for name in self._kwargs if name in _OWN_ARGUMENTS]
        if wrong:
            raise InvalidEnvironment(f"{env_id}: '{wrong[0]}' of EnvPool is set by the system")
        config = {"num_envs": num_envs, "batch_size": self.batch_size, "env_seed": [s % 2**31 for s in seeds]}
        config["num_threads"] = num_threads(self.batch_size)
        config |= {name: value for name, value in self._kwargs.items() if name != "max_episode_steps"}
        if (limit := given_limit(env_id, self._kwargs)) is not None:
            config["max_episode_steps"] = _NO_LIMIT if limit == -1 else limit
        try:
            return envpool.make(env_id, env_type="gymnasium", **config)
        except Exception as error:
            raise InvalidEnvironment(f"{env_id}: EnvPool could not make it: {in_one_line(error)}") from error

    def _advance(self, actions: NDArray[Any]) -> Step:
        if self.batch_size < self.num_envs:
            raise RuntimeError(
                f"{self.env_id}: EnvPool with batch_size={self.batch_size} steps by send() and recv() alone"
            )
        obs, reward, terminated, truncated, _ = self._pool.step(actions)
        return np.array(obs), np.array(reward, np.float64), terminated, truncated, {}

    def _restart(self, rows: NDArray[np.intp], seeds: Seeds, options: Options) -> Begun:
        whole = len(rows) == self.num_envs
        if any(seed is not None for seed in seeds) and not (self._fresh and list(seeds) == self._first_seeds):
            if not whole:
                raise ValueError(f"{self.env_id}: EnvPool seeds all of its environments or none")
            self._make_again([self._seed + i if seed is None else seed for i, seed in enumerate(seeds)])
        elif self.batch_size < self.num_envs and not self._fresh:
            entropy = np.random.SeedSequence((self._seed % 2**63, self._num_steps))
            self._make_again([int(seed) for seed in entropy.generate_state(self.num_envs)])
        self._fresh = False
        if self.batch_size == self.num_envs:
            obs, info = self._pool.reset(rows.astype(np.int32))
            return np.array(obs[np.argsort(info["env_id"])]), {}
        if not whole:
            raise ValueError(
                f"{self.env_id}: EnvPool with a batch_size resets all of its environments or none"
            )
        return self._reset_all(), {}

    def _repair(self, row: int) -> None:
        """A reset repairs it; EnvPool seeds none alone."""

    def _make_again(self, seeds: Sequence[int]) -> None:
        """Replace the pool by a new one, since EnvPool takes seeds only when it is made."""
        self._pool.close()
        self._pool = self._make_pool(self.env_id, self.num_envs, seeds)

    def _reset_all(self) -> NDArray[Any]:
        self._ready, self._ending, self._under_way = [], {}, 0
        self._pool.async_reset()
        obs: NDArray[Any] | None = None
        for _ in range(self.num_envs // self.batch_size):
            some, *_, info = self._pool.recv()
            if obs is None:
                obs = np.empty((self.num_envs, *some.shape[1:]), some.dtype)
            obs[info["env_id"]] = some
        assert obs is not None
        return obs

    # First-finished batches.

    def send(self, actions: NDArray[Any], env_id: NDArray[np.integer[Any]] | None = None) -> None:
        """Start a step of the environments ``env_id`` ``[B]`` (default all) by actions ``[B, *action]``."""
        if self.batch_size == self.num_envs:
            super().send(actions, env_id)
            return
        ids = np.arange(self.num_envs) if env_id is None else np.asarray(env_id)
        actions = self._for_step(actions, len(ids))
        self._under_way += len(ids)
        self._pool.send(actions, ids.astype(np.int32))

    def recv(self) -> Step:
        """The first ``batch_size`` environments to finish; ``info["env_id"]`` ``[B]`` has their numbers."""
        if self.batch_size == self.num_envs:
            return super().recv()
        count = self.batch_size
        while len(self._ready) < count:
            if self._under_way < count:
                raise RuntimeError(
                    f"{self.env_id}: recv() of {count} environments, but only"
                    f" {self._under_way + len(self._ready)} are under way"
                )
            self._receive()
        first, self._ready = self._ready[:count], self._ready[count:]
        ids, obs, reward, terminated, truncated, final_obs = zip(*first, strict=True)
        rows = np.array(ids)
        self._num_steps += 1
        self._length[rows] += 1
        result = np.array(obs), np.array(reward), np.array(terminated), np.array(truncated)
        self._return[rows] += result[1]
        info: dict[str, Any] = {"env_id": rows}
        ended = result[2] | result[3]
        if ended.any():
            info |= self._end_episodes(rows, ended, np.array(final_obs))
        return *result, info

    def _receive(self) -> None:
        """Receive a batch from EnvPool, and start the resets of the episodes that ended in it."""
        obs, reward, terminated, truncated, info = self._pool.recv()
        ids = info["env_id"]
        ended = terminated | truncated
        again = []
        for k, row in enumerate(ids.tolist()):
            if row in self._ending:  # this is the reset
                self._ready.append((row, obs[k], *self._ending.pop(row)))
            elif ended[k]:
                self._ending[row] = float(reward[k]), bool(terminated[k]), bool(truncated[k]), obs[k]
                again.append(row)
            else:
                self._ready.append((row, obs[k], float(reward[k]), False, False, obs[k]))
        self._under_way -= len(ids) - len(again)
        if again:
            self._pool.send(np.stack([self._idle_action] * len(again)), np.array(again, np.int32))

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        if hasattr(self, "_pool"):
            self._pool.close()


def num_threads(batch_size: int) -> int:
    """How many threads step ``batch_size`` environments: no more than OMP_NUM_THREADS says, which a launcher
    sets for each process, else than this process has cores. EnvPool alone counts all of the machine's.
    """
    stated = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a number for each level
    most = int(stated) if stated.isdecimal() else 0
    return min(batch_size, most or available_cores())


#: What the table of engines calls it.
make = EnvPoolBatch


def why_not(env_id: str) -> str:
    """Why EnvPool cannot make this environment, in words; empty if it can."""
    if find_spec("envpool") is None:
        return f"EnvPool is not installed ({HOW_TO_INSTALL})"
    envpool = _envpool()
    names = envpool.list_all_envs()
    if env_id in names:
        space = envpool.make_spec(env_id).observation_space
        return "" if isinstance(space, Box) else f"EnvPool gives its observations as a {type(space).__name__}"
    near = _near(env_id)
    return f"EnvPool has no {env_id}" + (f" (did you mean {' or '.join(near)}?)" if near else "")


@cache
def _envpool() -> Any:
    """Import EnvPool, and suppress Gymnasium's warnings about its float64 bounds of float32 spaces."""
    import envpool

    warnings.filterwarnings("ignore", "(?s).*precision lowered by casting")
    return envpool


def may_have_meant(env_id: str) -> bool:
    """Whether an unknown name resembles one of EnvPool's, or looks like an Atari game."""
    if find_spec("envpool") is None:
        return _ATARI.fullmatch(env_id) is not None
    return bool(_near(env_id, 0.75))


@cache
def _near(env_id: str, cutoff: float = 0.6) -> list[str]:
    return near_ones(env_id, _envpool().list_all_envs(), cutoff)
