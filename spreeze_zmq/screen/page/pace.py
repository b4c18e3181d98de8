"""The rate of the agent's pictures: high while a core is idle, else as its share of the machine allows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from spreeze_zmq.base.machine import core_time
from spreeze_zmq.base.quota import quota_cores
from spreeze_zmq.base.usage import busy_cpu_s

#: Seconds between two measurements of the machine's load.
LOOK_S = 1.0
#: With at least this many idle cores, pictures slow nothing down.
ENOUGH_IDLE = 0.5
#: Lowest rate of pictures, 1/s: fewer do not look like movement.
LEAST_PER_S = 4.0


class IdleCores:
    """Counts the idle ones of the cores that this process may run on."""

    def __init__(self) -> None:
        self._before = time.monotonic(), busy_cpu_s()

    def __call__(self) -> float:
        """Idle cores since the last call; under a quota none, as what others left idle may not be used."""
        (began_s, before_s), self._before = self._before, (time.monotonic(), busy_cpu_s())
        if quota_cores() is not None:
            return 0.0
        ended_s, after_s = self._before
        busy = (after_s - before_s) / max(ended_s - began_s, 1e-9)
        return max(0.0, len(os.sched_getaffinity(0)) - busy)


class Pace:
    """Adjusts the rate of pictures to what they cost.

    Args:
        share: share of the machine's cores that this process may use while no core is idle.
        idle: returns the idle cores since its last call; those of this machine by default.
        cpu: returns the CPU seconds of this process.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        share: float,
        idle: Callable[[], float] | None = None,
        cpu: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cores = share * core_time()
        self._idle, self._cpu, self._clock = idle or IdleCores(), cpu, clock
        self._scale = 0.5
        self._looked_s, self._used_s = clock(), cpu()

    def per_s(self, most: float) -> float:
        """Pictures a second; ``most`` while the machine has idle cores."""
        if self._clock() - self._looked_s >= LOOK_S:
            self._look(LEAST_PER_S / most)
        return max(LEAST_PER_S, most * self._scale)

    def _look(self, least: float) -> None:
        now_s, used_s = self._clock(), self._cpu()
        used = (used_s - self._used_s) / (now_s - self._looked_s)
        self._looked_s, self._used_s = now_s, used_s
        if self._idle() >= ENOUGH_IDLE:
            self._scale = 1.0
        elif used > 0:
            # The square root goes half the way: this process's other work counts in ``used`` too.
            self._scale *= min(2.0, (self._cores / used) ** 0.5)
        self._scale = min(1.0, max(least, self._scale))
