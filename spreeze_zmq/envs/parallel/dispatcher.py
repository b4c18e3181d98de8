"""Hands the steps of a batch to its workers, waits for them, and replaces workers that die or hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.parallel.pool import TICK_S, WorkerPool

#: Where a worker is that makes its environments.
MAKING = -1


class Dispatcher:
    """The units of a batch, and which of them are under way.

    Args:
        batch: whose environments they are, for messages; it counts the failures.
        pool: the workers.
        units: for each worker, the first environment and the size of each of its units.
        lengths: ``[num_envs]``, steps of each environment's episode so far, as the batch counts them.
        on_tick: called a few times a second while workers are waited for.
        start_s: seconds within which a worker makes its environments, and makes them again.

    Attributes:
        timeout_s: seconds after which a worker counts as hanging that is still at the same environment;
            ``math.inf`` for never.
        rows: for each unit, the numbers of its environments.
        unit_of: ``[num_envs]``, the unit of each environment.
        busy: ``[num_units]``, whether a unit is under way.
        final_infos: by environment, of episodes that have not been returned yet.
    """

    def __init__(
        self,
        batch: BatchedEnv,
        pool: WorkerPool,
        units: Sequence[Sequence[tuple[int, int]]],
        lengths: NDArray[np.integer[Any]],
        on_tick: Callable[[], None],
        start_s: float,
    ) -> None:
        self._batch, self._pool, self._length = batch, pool, lengths
        self._on_tick, self._start_s, self.timeout_s = on_tick, start_s, start_s
        self.rows = [np.arange(first, first + count) for own in units for first, count in own]
        self.unit_of = np.repeat(np.arange(len(self.rows)), [len(rows) for rows in self.rows])
        self._worker_of = [worker for worker, own in enumerate(units) for _ in own]
        self.busy = np.ones(len(self.rows), np.bool_)
        # For each worker: its units, how many of them are under way, at which environment since when.
        self._own = [np.flatnonzero(np.equal(self._worker_of, w)).tolist() for w in range(len(units))]
        self._pending = [len(own) for own in units]
        self._since_s = [time.monotonic()] * len(units)
        self._at = np.full_like(pool.slots.at, MAKING)
        pool.slots.at[:] = MAKING
        self._checked_s = 0.0  # when hanging workers were last looked for
        self._killed: dict[int, str] = {}  # worker -> why, in words
        self._num_read = np.zeros(len(units), np.int64)  # messages read from each worker
        self.final_infos: dict[int, dict[str, float]] = {}

    def begin(self, units: list[int]) -> dict[int, list[int]]:
        """Mark units as under way; returns them by worker."""
        by_worker: dict[int, list[int]] = {}
        for unit in units:
            by_worker.setdefault(self._worker_of[unit], []).append(unit)
        now_s = time.monotonic()
        self.busy[units] = True
        for worker, own in by_worker.items():
            if not self._pending[worker]:
                self._since_s[worker] = max(self._since_s[worker], now_s)  # later for one being made
            self._pending[worker] += len(own)
        return by_worker

    def collect(self, count: int) -> list[int]:
        """Wait for the first ``count`` units to finish, and replace workers that die or hang meanwhile."""
        units: list[int] = []
        while (missing := count - len(units)) > 0:
            numbers = self._pool.finished(missing)
            if not numbers:
                self.read_messages()  # a worker whose channel is full waits for this
                self._on_tick()
            if numbers is None:
                raise EnvironmentFailure(f"{self._batch.env_id}: all of the worker processes are gone")
            now_s = time.monotonic()
            for number in numbers:
                if number < 0:
                    self._on_death(~number)
                    continue
                worker = self._worker_of[number]
                self._pending[worker] -= 1
                self._since_s[worker] = now_s
                self.busy[number] = False
                units.append(number)
            if now_s > self._checked_s + TICK_S and self._pool.none_finished():
                self._checked_s = now_s
                self._kill_hanging(now_s)
        return units

    def _kill_hanging(self, now_s: float) -> None:
        """Kill the workers that are at one environment for longer than the timeout; ``_on_death`` replaces
        them.
        """
        moved = (self._pool.slots.at != self._at).any(axis=1)
        self._at[:] = self._pool.slots.at
        for worker in moved.nonzero()[0].tolist():
            self._since_s[worker] = now_s
        for worker, since_s in enumerate(self._since_s):
            if self._pending[worker] and now_s - since_s > self.timeout_s and worker not in self._killed:
                self._killed[worker] = f"hung for more than {self.timeout_s:g} s"
                self._pool.kill(worker)

    def read_messages(self) -> None:
        """Read the failures and infos that workers have sent."""
        unread = self._pool.slots.num_messages != self._num_read
        if unread.any():
            for worker in unread.nonzero()[0].tolist():
                self._read_from(worker)

    def _read_from(self, worker: int) -> dict[str, Any]:
        """Read the failures and infos of a worker; returns its ``error`` message, if there is one."""
        self._num_read[worker], error = self._pool.slots.num_messages[worker], {}
        for message in self._pool.messages(worker):
            if "error" in message:
                error = message
            elif "final_info" in message:
                self.final_infos[message["row"]] = message["final_info"]
            else:
                about = {name: message[name] for name in ("traceback", "mild")}
                self._batch.failures.note(message["summary"], **about)
        return error

    def _on_death(self, worker: int) -> None:
        """Note a worker's death, restart it, and send it the units that were under way."""
        how = self._killed.pop(worker, self._pool.how_it_ended(worker))
        if error := self._read_from(worker):
            how = f"could not make its environments: {error['error']}"
        summary = f"{self._batch.env_id}: {self._where(worker)}: worker {worker} {how}"
        self._batch.failures.note(summary, traceback=error.get("traceback", ""))
        own = self._own[worker]
        for unit in own:
            self._pool.slots.lost[self.rows[unit]] = True
        self._at[worker] = self._pool.slots.at[worker] = MAKING
        self._pool.restart(worker)
        self._since_s[worker] = time.monotonic() + self._start_s
        if unfinished := [unit for unit in own if self.busy[unit]]:
            self._pool.step(worker, unfinished)

    def _where(self, worker: int) -> str:
        """Environments and step at which a worker died, in words."""
        first, within = self._pool.slots.at[worker].tolist()
        if first == MAKING or not self._pending[worker]:
            own, when = self._own[worker], "being made" if first == MAKING else "between two steps"
            first, last = self.rows[own[0]][0], self.rows[own[-1]][-1]
            return f"environments {first} to {last} of {self._batch.num_envs}, {when}"
        rows = self.rows[self.unit_of[first]]
        if engine_of(self._batch.backend).one_by_one or len(rows) == 1:
            row = first + within
            step = int(self._length[row]) + 1
            return f"environment {row} of {self._batch.num_envs} in step {step} of its episode"
        return f"environments {first} to {rows[-1]} of {self._batch.num_envs} in a step"
