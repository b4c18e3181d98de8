"""What the launcher looks at: before the run whether its processes may open enough files, then now and then
whether the disk of the run's folder has room, without which every process waits with what is due, and whether
the run's sockets are there, without which none finds another.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.patience import PATIENCE_S
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.processes import ChannelPlan
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.wire.channels import SocketFolder

DISK_CHECK_S = 0.5
#: A disk that was full has room again with so many bytes.
ENOUGH_BYTES = 64 * 1024

SOCKETS_CHECK_S = 1.0
#: So many checks in a row must miss a socket: one that starts again has none for a moment.
MISSED = 10
#: A file that is touched this often is not old enough for any cleaner.
TOUCH_S = 3600.0

#: Files that a process has open beside those that it has for each of the others (seen: 19 to 32), those of a
#: broker or learner for each other process, and those of a thread of ``--inproc`` (seen: 12).
OWN_FILES, FILES_EACH, FILES_OF_THREAD = 48, 2, 16


def check_open_files(plan: Plan, *, threads: bool = False, hard: int | None = None) -> None:
    """Check that the machine allows as many open files as a process of the run may need. ZeroMQ ends a
    process that finds no file left for a connection.

    Args:
        plan: of the run.
        threads: the components are threads of one process.
        hard: the limit; by default this process's, up to which each process raises its own.

    Raises:
        InputError: it allows fewer.
    """
    if hard is None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = sum(component.count.maximum for component in plan.components.values())
    each, who = (FILES_OF_THREAD, "process of --inproc") if threads else (FILES_EACH, "broker")
    workers = plan.components[SAMPLER].options.get("workers")
    of_sampler = OWN_FILES + (workers if isinstance(workers, int) else 0)
    rows = (
        (OWN_FILES + each * count, f"the {who} for up to {count} processes", "count"),
        (of_sampler, f"a sampler for its {workers} workers", "workers"),
    )
    needed, whose, option = max(rows)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"open files: this machine allows a process {hard} (ulimit -Hn), and {whose} may need {needed}: "
            "raise the hard limit (nofile in /etc/security/limits.conf, LimitNOFILE of a service, "
            f"docker run --ulimit nofile=4096), or lower components.{SAMPLER}.{option}"
        )


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
        self._check_s = now_s + DISK_CHECK_S
        try:
            free = self._free(self._path)
        except OSError:
            return ""
        if not self._full_s and free <= 0:
            self._full_s = now_s
            return (
                f"{self._shown}: its disk is full: each process waits {PATIENCE_S:g} s for room to write, "
                "then the run ends; make room there"
            )
        if self._full_s and free >= ENOUGH_BYTES:
            stood_s, self._full_s = now_s - self._full_s, 0.0
            return f"{self._shown}: its disk has room again, after {stood_s:.0f} s"
        return ""


class SocketWatch:
    """Looks once a second whether somebody has removed what living processes have bound.

    Args:
        sockets: the run's.
        channels: by name.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        sockets: SocketFolder,
        channels: Mapping[str, ChannelPlan],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        own = {name: sockets.endpoint(name) for name in channels}
        self._sockets, self._clock = sockets, clock
        self._names = [name for name, channel in channels.items() if channel.endpoint == own[name]]
        self._missed: Counter[str] = Counter()
        self._check_s, self._touch_s = 0.0, clock() + TOUCH_S

    def lost(self) -> str:
        """What is gone for good, and what that means, in words; empty for nothing."""
        now_s = self._clock()
        if now_s < self._check_s:
            return ""
        self._check_s = now_s + SOCKETS_CHECK_S
        if now_s >= self._touch_s:
            self._touch_s = now_s + TOUCH_S
            self._sockets.touch()
        gone = self._sockets.removed(self._names)
        self._missed = Counter({name: self._missed[name] + 1 for name in gone})
        lost = sorted(name for name, count in self._missed.items() if count >= MISSED)
        if not lost:
            return ""
        folder = self._sockets.path
        return (
            f"somebody removed the run's sockets ({', '.join(lost)}) in {folder}, perhaps a cleaner of "
            f"{folder.parent.parent}: no process can join the run any more"
        )
