"""A batch whose environments run in worker processes; the first that finish are the first given out."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EnvironmentFailure
from .batched import BatchedEnv, Step
from .failures import Failure
from .slots import Slots, layout_of
from .units import divide
from .worker import UNIT
from .worker_pool import TICK_S, WorkerPool


class WorkerEnv(BatchedEnv):
    """``num_envs`` environments in ``num_workers`` processes.

    What is stepped at once is a unit: a worker's whole share where ``recv`` waits for all, else single
    environments, or equal groups of them where a native task steps several as fast as one. The environments'
    own infos stay in their processes.

    A worker that is killed, or in which a step takes longer than ``step_timeout_s``, is started again; the
    episodes of its environments are truncated at the last observation that was given out.

    Args:
        like: one such environment in this process, from which everything that can be known is taken.
        num_envs: how many.
        num_workers: processes, at most ``num_envs``.
        batch_size: how many ``recv`` waits for.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        arguments: of ``make``, for the workers; plain data.
        step_timeout_s: seconds after which a step counts as hanging; ``None`` for never.

    Raises:
        InvalidEnvironment: numbers that do not fit, spaces that fit into no slot.
        EnvironmentFailure: the workers did not come up.
    """

    def __init__(
        self,
        like: BatchedEnv,
        num_envs: int,
        num_workers: int,
        batch_size: int,
        seed: int,
        arguments: dict[str, Any],
        step_timeout_s: float | None,
    ):
        spaces = like.single_observation_space, like.single_action_space
        super().__init__(like.env_id, num_envs, *spaces, like.max_episode_steps, seed, like.episode_limit)
        self.spec, self.render_mode, self.backend = like.spec, None, like.backend
        self.metadata = {**like.metadata, "render_modes": []}
        self.batch_size, self.num_workers = batch_size, num_workers
        self.step_timeout_s = math.inf if step_timeout_s is None else step_timeout_s
        units = divide(num_envs, num_workers, batch_size, single=like.backend == "gymnasium")
        slots = Slots(layout_of(self.env_id, num_envs, num_workers, *spaces))
        self.slots = slots
        self._rows = [np.arange(first, first + count) for own in units for first, count in own]
        self._unit_of = np.repeat(np.arange(len(self._rows)), [len(rows) for rows in self._rows])
        self._worker_of = [worker for worker, own in enumerate(units) for _ in own]
        self._busy = np.zeros(len(self._rows), np.bool_)
        self._pending = [0] * num_workers
        self._since_s = [0.0] * num_workers
        self._looked_s = 0.0
        self._killed: dict[int, str] = {}
        self._heard = np.zeros(num_workers, np.int64)
        self._known = np.zeros_like(slots.obs)  # the last observation of each that was given out
        self._everyone, self._every_unit = np.arange(num_envs), list(range(len(self._rows)))
        self.pool = WorkerPool(slots, units, {"seed": seed, "make": arguments})

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """As of every batch; what is under way is waited for and forgotten. The info is empty."""
        self._collect(int(self._busy.sum()))
        options = dict(options) if options else {}
        mask = options.pop("reset_mask", None)
        slots, seeds = self.slots, self._seeds(seed)
        slots.chosen[:] = True if mask is None else mask
        slots.seed[:] = [-1 if seed is None else seed for seed in seeds]
        slots.put_options(options or None)
        chosen = slots.chosen.nonzero()[0]
        units = np.unique(self._unit_of[chosen])
        self._started = True
        self._tell(units.tolist(), reset=True)
        mended, self.failures.max_failures = (
            self.failures.max_failures,
            0,
        )  # nothing runs yet that would go on
        try:
            self._collect(len(units))
            self._hear()
        finally:
            self.failures.max_failures = mended
        self._length[chosen], self._return[chosen] = 0, 0.0
        self._known[chosen] = slots.obs[chosen]
        obs = np.zeros_like(slots.obs)
        obs[chosen] = slots.obs[chosen]
        return obs, {}

    def step(self, actions: NDArray[Any]) -> Step:
        """One step of every environment, all of them waited for."""
        if np.count_nonzero(self._busy):
            raise RuntimeError(f"{self.env_id}: step() while environments are under way: recv() them first")
        self.send(actions)
        self._collect(len(self._rows))
        return self._gather(self._everyone)

    def send(self, actions: NDArray[Any], env_id: NDArray[np.integer[Any]] | None = None) -> None:
        """Hand actions to some environments.

        Args:
            actions: ``[B, *action]``.
            env_id: ``[B]``: which environments they are for, such as ``info["env_id"]`` of ``recv``; all by
                default.
        """
        if not self._started:
            raise EnvironmentFailure(f"{self.env_id}: call reset() before send()")
        ids = self._everyone if env_id is None else np.asarray(env_id, np.intp)
        units = self._every_unit if env_id is None else list(dict.fromkeys(self._unit_of[ids].tolist()))
        actions = np.asarray(actions, self._action_dtype)
        if actions.shape != (len(ids), *self._action_shape[1:]):
            expected = (len(ids), *self._action_shape[1:])
            raise ValueError(f"{self.env_id}: actions of shape {expected} expected, got {actions.shape}")
        if env_id is not None and sum(len(self._rows[unit]) for unit in units) != len(ids):
            raise ValueError(
                f"{self.env_id}: environments {self._rows[units[0]].tolist()} step together:"
                " send() takes each of them once, and their actions at once"
            )
        if np.count_nonzero(self._busy[units]):
            raise RuntimeError(
                f"{self.env_id}: send() for environments that are under way: recv() them first"
            )
        self.slots.action[ids] = actions
        self._tell(units)

    def recv(self) -> Step:
        """The first ``batch_size`` environments that have finished; ``info["env_id"]`` tells which."""
        count = self.batch_size // len(self._rows[0]) if self.batch_size < self.num_envs else len(self._rows)
        under_way = int(np.count_nonzero(self._busy))
        if under_way < count:
            raise RuntimeError(
                f"{self.env_id}: recv() of {self.batch_size} environments, but only"
                f" {under_way * len(self._rows[0])} are under way"
            )
        units = self._collect(count)
        ids = (
            np.array(units)
            if len(self._rows) == self.num_envs
            else np.concatenate([self._rows[u] for u in units])
        )
        result = self._gather(ids)
        result[4]["env_id"] = ids
        return result

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        if hasattr(self, "pool"):
            self.pool.close()

    # Talking to the workers.

    def _tell(self, units: list[int], reset: bool = False) -> None:
        """One message to each worker that has something to do."""
        messages: dict[int, bytearray] = {}
        for unit in units:
            worker = self._worker_of[unit]
            messages.setdefault(worker, bytearray()).extend(UNIT.pack(~unit if reset else unit))
        now_s = time.monotonic()
        self._busy[units] = True
        for worker, message in messages.items():
            if not self._pending[worker]:
                self._since_s[worker] = now_s
            self._pending[worker] += len(message) // UNIT.size
            self.pool.tell(worker, message)

    def _collect(self, count: int) -> list[int]:
        """The first ``count`` units that finish, the dead started again meanwhile."""
        units: list[int] = []
        while (missing := count - len(units)) > 0:
            numbers = self.pool.take(missing)
            if numbers is None:
                raise EnvironmentFailure(f"{self.env_id}: all of the worker processes are gone")
            now_s = time.monotonic()
            for number in numbers:
                if number < 0:
                    self._on_death(~number)
                    continue
                worker = self._worker_of[number]
                self._pending[worker] -= 1
                self._since_s[worker] = now_s
                self._busy[number] = False
                units.append(number)
            if now_s > self._looked_s + TICK_S and self.pool.nothing_waits():
                self._looked_s = now_s
                self._kill_hanging(now_s)
        return units

    def _kill_hanging(self, now_s: float) -> None:
        """End the workers whose step takes too long; their deaths are found like any other."""
        for worker, since_s in enumerate(self._since_s):
            if self._pending[worker] and now_s - since_s > self.step_timeout_s and worker not in self._killed:
                self._killed[worker] = f"hung for more than {self.step_timeout_s:g} s"
                self.pool.kill(worker)

    def _hear(self) -> None:
        """Note what workers have told of failures."""
        told = self.slots.told
        if (told != self._heard).any():
            for worker in (told != self._heard).nonzero()[0].tolist():
                self._heard[worker] = told[worker]
                for message in self.pool.messages(worker):
                    if "summary" in message:
                        self.failures.note(Failure(message["summary"], message["traceback"]))

    def _on_death(self, worker: int) -> None:
        """Note it, start another worker, and give it what the dead one had still to do."""
        ended = self.pool.how_it_ended(worker)
        how = self._killed.pop(worker, ended)
        own = [unit for unit, its in enumerate(self._worker_of) if its == worker]
        self._heard[worker] = self.slots.told[worker]
        trace = ""
        for message in self.pool.messages(worker):
            if "error" in message:
                how, trace = f"could not make its environments: {message['error']}", message["traceback"]
            else:
                self.failures.note(Failure(message["summary"], message["traceback"]))
        self.failures.note(
            Failure(f"{self.env_id}: {self._where(worker, own)}: worker {worker} {how}", trace)
        )
        for unit in own:
            self.slots.lost[self._rows[unit]] = True
        self.pool.restart(worker)
        self._since_s[worker] = time.monotonic()
        unfinished = [unit for unit in own if self._busy[unit]]
        if unfinished:
            self.pool.tell(worker, b"".join(UNIT.pack(unit) for unit in unfinished))

    def _where(self, worker: int, own: list[int]) -> str:
        """What a worker was doing, in words."""
        first, within = self.slots.at[worker].tolist()
        rows = self._rows[self._unit_of[first]]
        if not self._pending[worker]:
            last = self._rows[own[-1]][-1]
            return f"environments {self._rows[own[0]][0]} to {last} of {self.num_envs}, between two steps"
        if self.backend == "gymnasium" or len(rows) == 1:
            row = first + within
            return f"environment {row} of {self.num_envs} in step {int(self._length[row]) + 1} of its episode"
        return f"environments {first} to {rows[-1]} of {self.num_envs} in a step"

    # What a step has given.

    def _gather(self, ids: NDArray[np.intp]) -> Step:
        """The results of the environments ``ids`` as fresh arrays in that order."""
        slots = self.slots
        self._num_steps += 1
        obs, reward = slots.obs[ids], slots.reward[ids]
        terminated, truncated = slots.terminated[ids], slots.truncated[ids]
        self._length[ids] += 1
        self._return[ids] += reward
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if np.count_nonzero(ended):
            info = self._ending(ids, obs, ended)
        self._known[ids] = obs
        self._hear()
        return obs, reward, terminated, truncated, info

    def _ending(self, ids: NDArray[np.intp], obs: NDArray[Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """The info of the episodes that ended, the failed ones with the last observation that is known."""
        info: dict[str, Any] = {}
        over, failed = ids[ended], self.slots.failed[ids]
        final_obs = obs.copy()
        final_obs[ended] = self.slots.final_obs[over]
        if np.count_nonzero(failed):
            final_obs[failed] = self._known[ids[failed]]
            self._length[ids[failed]] -= 1
            self.slots.failed[ids] = False
            info["failed"] = failed
        returns, lengths = np.where(ended, self._return[ids], 0.0), np.where(ended, self._length[ids], 0)
        self._return[over], self._length[over] = 0.0, 0
        episode = {"r": returns, "l": lengths}
        return {"final_obs": final_obs, "_final_obs": ended, "episode": episode, "_episode": ended, **info}
