"""A batch whose environments run in worker processes; ``recv`` returns the first that finish."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.infos import Begun, Options, Seeds, Step, seeds_of, stacked
from spreeze_zmq.envs.parallel.pool import TICK_S, Slots, WorkerPool, arrays_for, check_options, divide


class WorkerBatch(BatchedEnv):
    """``num_envs`` environments in ``num_workers`` processes.

    A unit is a group of environments that a worker steps at once: the worker's whole share if ``recv`` waits
    for all environments; otherwise single environments, or equal groups where a native task steps several as
    fast as one. The environments' own infos are not returned, except the scalars of the last steps of
    episodes with ``step_info="final"``.

    A worker that dies, or whose step takes longer than ``step_timeout_s``, is restarted. The episodes of its
    environments are truncated at the last observation that was returned.

    Args:
        like: one such environment in this process, which gives spaces, limit and backend.
        num_envs: number of environments.
        num_workers: number of processes, at most ``num_envs``.
        batch_size: number of environments that ``recv`` waits for.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        settings: plain data, see ``WorkerForkServer``; seed and units are added here.
        step_timeout_s: seconds after which a step counts as hanging; ``None`` for never.
        on_tick: called a few times a second while the batch waits for workers.
        start_timeout_s: seconds within which a worker makes its environments.

    Raises:
        InvalidEnvironment: the spaces do not fit into shared memory.
        EnvironmentFailure: the workers did not start.
    """

    def __init__(
        self,
        like: BatchedEnv,
        num_envs: int,
        num_workers: int,
        batch_size: int,
        seed: int,
        settings: dict[str, Any],
        step_timeout_s: float | None,
        on_tick: Callable[[], None] = lambda: None,
        start_timeout_s: float = 60.0,
    ):
        spaces = like.single_observation_space, like.single_action_space
        super().__init__(like.env_id, num_envs, *spaces, like.max_episode_steps, seed, like.episode_limit)
        self.spec, self.render_mode, self.backend = like.spec, None, like.backend
        self.metadata = {**like.metadata, "render_modes": []}
        self.own_spaces = like.own_spaces
        self.batch_size, self.num_workers, self.on_tick = batch_size, num_workers, on_tick
        self._timeout_s = max(start_timeout_s, step_timeout_s or math.inf)
        units = divide(num_envs, num_workers, batch_size, single=engine_of(like.backend).one_by_one)
        self.masks = like.masks
        row = spaces[0] if self.masks is None else self.masks.space(spaces[0].dtype)
        self.slots = slots = Slots(arrays_for(self.env_id, num_envs, num_workers, row, spaces[1]))
        # For each unit: its rows, its worker, whether it is under way.
        self._rows = [np.arange(first, first + count) for own in units for first, count in own]
        self._unit_of = np.repeat(np.arange(len(self._rows)), [len(rows) for rows in self._rows])
        self._worker_of = [worker for worker, own in enumerate(units) for _ in own]
        self._busy = np.ones(len(self._rows), np.bool_)
        # For each worker: its units, how many of them are under way, since when.
        self._own = [np.flatnonzero(np.equal(self._worker_of, w)).tolist() for w in range(num_workers)]
        self._pending = [len(own) for own in units]
        self._since_s = [time.monotonic()] * num_workers
        self._checked_s = 0.0  # when hanging workers were last looked for
        self._killed: dict[int, str] = {}  # worker -> why, in words
        self._num_read = np.zeros(num_workers, np.int64)  # messages read from each worker
        self._final_infos: dict[int, dict[str, float]] = {}  # by row, of episodes not returned yet
        self._returned = np.zeros_like(slots.obs)  # the last observation returned of each environment
        self._all_units = list(range(len(self._rows)))
        self.pool = WorkerPool(slots, {**settings, "seed": seed, "units": units})
        try:
            self._collect(len(self._rows))  # each worker reports its units when it has made them
        except BaseException:
            self.pool.close()
            raise
        self._timeout_s = math.inf if step_timeout_s is None else step_timeout_s

    def reset(self, *, seed: int | Seeds | None = None, options: Options = None) -> Begun:
        """Wait for steps under way, drop their results and begin new episodes; the info is empty.

        The arguments and errors are those of ``BatchedEnv.reset``; options must be plain data.
        """
        self._collect(int(self._busy.sum()))
        options = dict(options) if options else {}
        mask = options.pop("reset_mask", None)
        check_options(options)
        slots, seeds = self.slots, seeds_of(self.env_id, self.num_envs, seed)
        slots.chosen[:] = True if mask is None else mask
        slots.seed[:] = [-1 if seed is None else seed for seed in seeds]
        chosen = slots.chosen.nonzero()[0]
        units = np.unique(self._unit_of[chosen]).tolist()
        tolerance = nullcontext() if self._started else self.failures.none_tolerated()
        self._started = True
        for worker, own in self._begin_units(units).items():
            self.pool.reset(worker, own, options)
        with tolerance:
            self._collect(len(units))
            self._read_messages()
        self._length[chosen], self._return[chosen] = 0, 0.0
        obs = np.zeros_like(slots.obs)
        obs[chosen] = self._returned[chosen] = slots.obs[chosen]
        info: dict[str, Any] = {}
        return self._parted(obs, info), info

    def step(self, actions: NDArray[Any]) -> Step:
        """Step every environment and wait for all of them; as ``BatchedEnv.step``.

        Raises:
            RuntimeError: environments are under way.
        """
        if np.count_nonzero(self._busy):
            raise RuntimeError(f"{self.env_id}: step() while environments are under way: recv() them first")
        self.send(actions)
        self._collect(len(self._rows))
        return self._gather(self._all_rows)

    def send(self, actions: NDArray[Any], env_id: NDArray[np.integer[Any]] | None = None) -> None:
        """Start a step of some environments.

        Args:
            actions: ``[B, *action]``.
            env_id: ``[B]``: the numbers of their environments, such as ``info["env_id"]`` of ``recv``; by
                default all.

        Raises:
            RuntimeError: some of the environments are under way.
            ValueError: the actions have another shape, or the environments are only a part of a unit.
        """
        if not self._started:
            raise EnvironmentFailure(f"{self.env_id}: call reset() before send()")
        ids = self._all_rows if env_id is None else np.asarray(env_id, np.intp)
        units = self._all_units if env_id is None else list(dict.fromkeys(self._unit_of[ids].tolist()))
        actions = self._for_step(actions, len(ids))
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
        for worker, own in self._begin_units(units).items():
            self.pool.step(worker, own)

    def recv(self) -> Step:
        """The first ``batch_size`` environments to finish; ``info["env_id"]`` ``[B]`` has their numbers."""
        count = self.batch_size // len(self._rows[0]) if self.batch_size < self.num_envs else len(self._rows)
        under_way = int(np.count_nonzero(self._busy))
        if under_way < count:
            raise RuntimeError(
                f"{self.env_id}: recv() of {self.batch_size} environments, but only"
                f" {under_way * len(self._rows[0])} are under way"
            )
        units = self._collect(count)
        single = len(self._rows) == self.num_envs
        ids = np.array(units) if single else np.concatenate([self._rows[unit] for unit in units])
        result = self._gather(ids)
        result[4]["env_id"] = ids
        return result

    @property
    def action_mask(self) -> NDArray[np.bool_] | None:
        """See the base; of the observations that were returned last."""
        return None if self.masks is None else self.masks.parted(self._returned)[1]

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        if hasattr(self, "pool"):
            self.pool.close()

    # Requests to the workers, and their results.

    def _begin_units(self, units: list[int]) -> dict[int, list[int]]:
        """Mark units as under way; returns them by worker."""
        by_worker: dict[int, list[int]] = {}
        for unit in units:
            by_worker.setdefault(self._worker_of[unit], []).append(unit)
        now_s = time.monotonic()
        self._busy[units] = True
        for worker, own in by_worker.items():
            if not self._pending[worker]:
                self._since_s[worker] = now_s
            self._pending[worker] += len(own)
        return by_worker

    def _collect(self, count: int) -> list[int]:
        """Wait for the first ``count`` units to finish, and replace workers that die or hang meanwhile."""
        units: list[int] = []
        while (missing := count - len(units)) > 0:
            numbers = self.pool.finished(missing)
            if not numbers:
                self._read_messages()  # a worker whose channel is full waits for this
                self.on_tick()
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
            if now_s > self._checked_s + TICK_S and self.pool.none_finished():
                self._checked_s = now_s
                self._kill_hanging(now_s)
        return units

    def _kill_hanging(self, now_s: float) -> None:
        """Kill the workers whose step takes longer than the timeout; ``_on_death`` replaces them."""
        for worker, since_s in enumerate(self._since_s):
            if self._pending[worker] and now_s - since_s > self._timeout_s and worker not in self._killed:
                self._killed[worker] = f"hung for more than {self._timeout_s:g} s"
                self.pool.kill(worker)

    def _read_messages(self) -> None:
        """Read the failures and infos that workers have sent."""
        unread = self.slots.num_messages != self._num_read
        if unread.any():
            for worker in unread.nonzero()[0].tolist():
                self._read_from(worker)

    def _read_from(self, worker: int) -> dict[str, Any]:
        """Read the failures and infos of a worker; returns its ``error`` message, if there is one."""
        self._num_read[worker], error = self.slots.num_messages[worker], {}
        for message in self.pool.messages(worker):
            if "error" in message:
                error = message
            elif "final_info" in message:
                self._final_infos[message["row"]] = message["final_info"]
            else:
                about = {name: message[name] for name in ("traceback", "mild")}
                self.failures.note(message["summary"], **about)
        return error

    def _on_death(self, worker: int) -> None:
        """Note a worker's death, restart it, and send it the units that were under way."""
        how = self._killed.pop(worker, self.pool.how_it_ended(worker))
        if error := self._read_from(worker):
            how = f"could not make its environments: {error['error']}"
        summary = f"{self.env_id}: {self._where(worker)}: worker {worker} {how}"
        self.failures.note(summary, traceback=error.get("traceback", ""))
        own = self._own[worker]
        for unit in own:
            self.slots.lost[self._rows[unit]] = True
        self.pool.restart(worker)
        self._since_s[worker] = time.monotonic()
        if unfinished := [unit for unit in own if self._busy[unit]]:
            self.pool.step(worker, unfinished)

    def _where(self, worker: int) -> str:
        """Environments and step at which a worker died, in words."""
        first, within = self.slots.at[worker].tolist()
        rows = self._rows[self._unit_of[first]]
        if not self._pending[worker]:
            own = self._own[worker]
            first, last = self._rows[own[0]][0], self._rows[own[-1]][-1]
            return f"environments {first} to {last} of {self.num_envs}, between two steps"
        if engine_of(self.backend).one_by_one or len(rows) == 1:
            row = first + within
            return f"environment {row} of {self.num_envs} in step {int(self._length[row]) + 1} of its episode"
        return f"environments {first} to {rows[-1]} of {self.num_envs} in a step"

    def _gather(self, ids: NDArray[np.intp]) -> Step:
        """Copy the results of the environments ``ids`` ``[B]`` from shared memory, in that order."""
        slots = self.slots
        self._num_steps += 1
        obs, reward = slots.obs[ids], slots.reward[ids]
        terminated, truncated = slots.terminated[ids], slots.truncated[ids]
        self._length[ids] += 1
        self._return[ids] += reward
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if np.count_nonzero(ended):
            final_obs = obs.copy()
            final_obs[ended] = slots.final_obs[ids[ended]]
            failed = slots.failed[ids]
            if np.count_nonzero(failed):
                final_obs[failed] = self._returned[ids[failed]]
                self._length[ids[failed]] -= 1
                slots.failed[ids] = False
                info["failed"] = failed
            info |= self._end_episodes(ids, ended, final_obs)
        self._returned[ids] = obs
        self._read_messages()
        if self._final_infos:
            rows = enumerate(ids.tolist())
            infos = {
                k: self._final_infos.pop(row) for k, row in rows if ended[k] and row in self._final_infos
            }
            if infos:
                info["final_info"], info["_final_info"] = stacked(infos, len(ids)), ended
        return self._parted(obs, info), reward, terminated, truncated, info
