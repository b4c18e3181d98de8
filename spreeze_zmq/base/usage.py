"""CPU time of processes and threads, load of the machine's cores and GPUs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from spreeze_zmq.base.parent_death import has_children
from spreeze_zmq.base.quota import quota_used_s

#: Least time between two searches for descendants while none of them ends: many systems read all of /proc.
LOOK_INTERVAL_S = 5.0
#: The unit in which the kernel counts the time of each CPU.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Family:
    """The CPU time and memory of this process, ``own``, and its descendants: a sampler's workers are its own
    load. New descendants are looked for every :data:`LOOK_INTERVAL_S`, and count wholly once they are found.

    The CPU time of a descendant is part of its parent's once the parent has waited for it, and lost if it
    never does; the sum then continues from its last value. All calls come from the main thread.
    """

    def __init__(self, own: psutil.Process) -> None:
        self.own = own
        self._descendants: list[psutil.Process] = []
        self._look_at_s = 0.0
        self._sum_s = self._cpu_s = 0.0

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all of them so far; never falls."""
        before_s, self._sum_s = self._sum_s, self._sum(lambda process: sum(process.cpu_times()[:4]))
        self._cpu_s += max(0.0, self._sum_s - before_s)
        return self._cpu_s

    def rss_bytes(self) -> int:
        """Their resident memory; what several of them share counts for each."""
        return int(self._sum(lambda process: process.memory_info().rss))

    def _sum(self, figure: Callable[[psutil.Process], float]) -> float:
        """The sum of a figure over all of them, as far as they live."""
        if not has_children():
            self._descendants = []
        elif time.monotonic() >= self._look_at_s:
            self._descendants = self.own.children(recursive=True)
            self._look_at_s = time.monotonic() + LOOK_INTERVAL_S
        total = figure(self.own)
        for process in self._descendants:
            try:
                total += figure(process)
            except psutil.Error:
                self._look_at_s = 0.0
        return total


class Threads:
    """The CPU time of this process's threads whose names begin with ``prefix``, at 1.5 us a look."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()  # the kernel cuts names at 15 bytes, inside of a character too
        self._clocks: list[int] = []

    def cpu_s(self) -> float:
        """CPU seconds of all of them so far; they are looked for until there are some."""
        if not self._clocks:
            # The kernel's number of another thread's clock, as of pthread_getcpuclockid(3).
            self._clocks = [(~thread << 3) | 6 for thread in self._found()]
        try:
            return sum(map(time.clock_gettime, self._clocks))
        except OSError:  # one of them has ended
            self._clocks = []
            return 0.0

    def _found(self) -> list[int]:
        found = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_bytes().startswith(self._prefix):
                    found.append(int(task.name))
        return found


def age_s() -> float:
    """Seconds since this process was started, to a tick. What psutil says is late by the part of a second at
    which the system has booted, and follows the wall clock where that is set.
    """
    with open("/proc/self/stat", "rb") as stat:
        started = int(stat.read().rpartition(b")")[2].split()[19])  # starttime of proc(5), since the boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / TICKS_PER_S)


def starved_s(pid: int | None = None) -> float:
    """Seconds in which the main thread of a process, by default this thread, could have run so far and waited
    for a core; 0 where the system does not count that.
    """
    try:  # nanoseconds that it ran, nanoseconds that it could have run, time slices
        name = "thread-self" if pid is None else str(pid)
        return 1e-9 * int(Path(f"/proc/{name}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0


def served_s() -> float:
    """Seconds on a clock that stops while this thread waits for a core, where the system counts that wait."""
    return time.monotonic() - starved_s()


def busy_cpu_s(pid: int = 0) -> float:
    """CPU seconds that all processes have used so far on the cores that ``pid`` may run on, 0 is this one; in
    a container that may use fewer, those in it.
    """
    own = os.sched_getaffinity(pid)
    if (used_s := quota_used_s(len(own))) is not None:
        return used_s
    busy = _busy_by_cpu()
    # A container may number its own CPUs from 0 on there, and lists no others then.
    return sum(busy[cpu] for cpu in (own if own <= busy.keys() else busy))


def _busy_by_cpu() -> dict[int, float]:
    """CPU seconds by the number of each CPU; those that are offline have none."""
    text = Path(psutil.PROCFS_PATH, "stat").read_text()
    lines = [line.split() for line in text.splitlines() if re.match(r"cpu\d", line)]
    # user, which includes guests, nice, system, idle, iowait, irq, softirq, steal; then guests
    ticks = {int(name[3:]): [int(number) for number in numbers[:8]] for name, *numbers in lines}
    return {cpu: (sum(each) - sum(each[3:5])) / TICKS_PER_S for cpu, each in ticks.items()}


class Gpus:
    """The NVIDIA GPUs of the machine; none without the package ``nvidia-ml-py`` and a driver."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        with contextlib.suppress(Exception):  # a run needs no such figures, and a driver may raise anything
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
            ]

    def figures(self) -> list[dict[str, float]]:
        """For each GPU: ``busy`` (share of the last second) and ``memory_bytes``."""
        figures = []
        for handle in self._handles:
            try:
                busy = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle).used
            except self._nvml.NVMLError:
                continue
            figures.append({"busy": busy, "memory_bytes": memory})
        return figures
