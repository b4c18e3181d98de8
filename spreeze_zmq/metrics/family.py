"""The CPU time of a process and of all that it started: a sampler's workers are its own load."""

from __future__ import annotations

import os
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

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all of them so far; never falls."""
        if not has_children():
            self._descendants = []
        elif time.monotonic() >= self._look_at_s:
            self._look()
        before_s, self._sum_s = self._sum_s, self._added_up()
        self._cpu_s += max(0.0, self._sum_s - before_s)
        return self._cpu_s

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


def has_children() -> bool:
    """Whether this process has a child, dead or alive; costs one call of the kernel."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
