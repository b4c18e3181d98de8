"""Presence of the processes of one role: each one touches a file beside the run's sockets once a second."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Member:
    """One process; its successor of the same name has another incarnation."""

    incarnation: int
    pid: int


class Presence:
    """The processes ``ROLE-0`` to ``ROLE-(count-1)`` of a run on this machine.

    Args:
        folder: of the files.
        role: of the processes.
        count: number of processes.
        index: of this process.
        member: this process.
        timeout_s: a process that has not touched its file for longer is silent.
    """

    def __init__(
        self, folder: Path, role: str, count: int, index: int, member: Member, timeout_s: float
    ) -> None:
        self.names = [f"{role}-{number}" for number in range(count)]
        self._files = [folder / f"{name}.life" for name in self.names]
        self._own_file, self._member = self._files[index], member
        self._timeout_s = timeout_s

    def register(self) -> None:
        """Write this process's file; it replaces that of a predecessor."""
        unfinished = self._own_file.with_suffix(".new")
        unfinished.write_text(f"{self._member.incarnation} {self._member.pid}\n")
        os.replace(unfinished, self._own_file)

    def touch(self) -> None:
        """Show that this process still works."""
        os.utime(self._own_file)

    def members(self) -> list[Member | None]:
        """The last registered process of each name; None if there was none yet."""
        return [_read(path) for path in self._files]

    def lost(self, members: list[Member]) -> str:
        """Which of the members has died or been replaced, in words; empty if all are present."""
        for name, member, present in zip(self.names, members, self.members(), strict=True):
            if present != member:
                return f"{name} has been restarted"
            if not _is_alive(member.pid):
                return f"{name} (process {member.pid}) is gone"
        return ""

    def silent(self) -> tuple[str, float]:
        """The name of a silent process and the seconds since its last touch; an empty name if none is."""
        now_s = time.time()
        for name, path in zip(self.names, self._files, strict=True):
            silent_s = now_s - path.stat().st_mtime
            if silent_s > self._timeout_s:
                return name, silent_s
        return "", 0.0


def _read(path: Path) -> Member | None:
    try:
        incarnation, pid = path.read_text().split()
    except FileNotFoundError:
        return None
    return Member(int(incarnation), int(pid))


def _is_alive(pid: int) -> bool:
    """A zombie counts as dead."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
