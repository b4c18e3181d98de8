"""Whether the disk of the run's folder has room: while it has none, every process waits with what is due."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from spreeze_zmq.base.patience import PATIENCE_S

CHECK_S = 0.5
#: A disk that was full has room again with so many bytes.
ENOUGH_BYTES = 64 * 1024


def free_bytes(path: Path) -> int:
    """What this process may still write on the disk of a path. Raises OSError."""
    about = os.statvfs(path)
    return about.f_frsize * (about.f_bavail if os.geteuid() else about.f_bfree)


class DiskWatch:
    """Looks at a disk now and then.

    Args:
        path: on it.
        shown: what a user calls it.
        free: the bytes that are free on the disk of a path.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        path: Path,
        shown: str,
        free: Callable[[Path], int] = free_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._shown, self._free, self._clock = path, shown, free, clock
        self._check_s, self._full_s = 0.0, 0.0

    def news(self) -> str:
        """A line when the disk is full, and one when it has room again; empty for nothing new."""
        now_s = self._clock()
        if now_s < self._check_s:
            return ""
        self._check_s = now_s + CHECK_S
        try:
            free = self._free(self._path)
        except OSError:
            return ""
        if not self._full_s and free <= 0:
            self._full_s = now_s
            return (
                f"{self._shown}: its disk is full: each process waits {PATIENCE_S:.0f} s for room to write, "
                "then the run ends; make room there"
            )
        if self._full_s and free >= ENOUGH_BYTES:
            stood_s, self._full_s = now_s - self._full_s, 0.0
            return f"{self._shown}: its disk has room again, after {stood_s:.0f} s"
        return ""
