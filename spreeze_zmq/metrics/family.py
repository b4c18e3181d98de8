"""The CPU time of a process and of everybody that it started, and how they came by their cores: a sampler's
workers are its own load.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time

import psutil

#: Finding descendants reads all of /proc on many systems, so it is done this seldom while none of them ends.
LOOK_INTERVAL_S = 5.0


class Family:
    """This process, ``own``, and its descendants.

    CPU seconds of a descendant that was waited for are in its parent's; of one that was not, they are lost,
    and the sum goes on from there instead of falling. All is asked of the process's main thread.
    """

    def __init__(self, own: psutil.Process) -> None:
        self.own = own
        self._descendants: list[psutil.Process] = []
        self._look_at_s = 0.0
        self._sum_s = self._cpu_s = 0.0
        self._resting: tuple[int, int] | None = None
        self._rested = (0, 0)

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all of them so far; never falls."""
        if not has_children():
            self._descendants = []
        elif time.monotonic() >= self._look_at_s:
            self._look()
        before_s, self._sum_s = self._sum_s, self._added_up()
        self._cpu_s += max(0.0, self._sum_s - before_s)
        return self._cpu_s

    def rest(self) -> None:
        """From now on this process waits for others: what its core does says nothing of its work."""
        self._resting = own_switches()

    def work(self) -> None:
        """It works again."""
        self._rested, self._resting = self._all_rested(), None

    def switches(self) -> dict[str, int]:
        """How often the main threads of those that live gave up their core to wait for something,
        ``voluntary``, and how often it was taken from them, ``involuntary``: all so far, but for this
        process's rests.
        """
        voluntary, involuntary = (-number for number in self._all_rested())
        for process in (self.own, *(self._descendants if has_children() else ())):
            with contextlib.suppress(psutil.Error):
                found = process.num_ctx_switches()
                voluntary, involuntary = voluntary + found.voluntary, involuntary + found.involuntary
        return {"voluntary": max(0, voluntary), "involuntary": max(0, involuntary)}

    def _all_rested(self) -> tuple[int, int]:
        """Switches in all rests, up to now."""
        if self._resting is None:
            return self._rested
        voluntary, involuntary = own_switches()
        return (
            self._rested[0] + voluntary - self._resting[0],
            self._rested[1] + involuntary - self._resting[1],
        )

    def _look(self) -> None:
        self._descendants = self.own.children(recursive=True)
        self._look_at_s = time.monotonic() + LOOK_INTERVAL_S

    def _added_up(self) -> float:
        total_s = sum(self.own.cpu_times()[:4])
        for process in self._descendants:
            try:
                total_s += sum(process.cpu_times()[:4])
            except psutil.Error:
                self._look_at_s = 0.0
        return total_s


def own_switches() -> tuple[int, int]:
    """Voluntary and involuntary switches of this thread; costs one call of the kernel."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nvcsw, usage.ru_nivcsw


def has_children() -> bool:
    """Whether this process has a child, dead or alive; costs one call of the kernel."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
