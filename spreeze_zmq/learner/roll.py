"""Which processes of one role live now: each signs in a file beside the run's sockets, again and again."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Life:
    """One life of one process."""

    incarnation: int
    pid: int


class Roll:
    """The lives of ``count`` processes ``ROLE-0`` .. of a run on this machine.

    Args:
        folder: where their files lie.
        role: what they are.
        count: how many there should be.
        index: which one this is.
        life: of this process.
        silent_s: who has not signed for so long hangs.
    """

    def __init__(self, folder: Path, role: str, count: int, index: int, life: Life, silent_s: float) -> None:
        self.names = [f"{role}-{number}" for number in range(count)]
        self.index = index
        self.silent_s = silent_s
        self._files = [folder / f"{name}.life" for name in self.names]
        self._life = life

    @property
    def own(self) -> Path:
        """This process's file."""
        return self._files[self.index]

    def enter(self) -> None:
        """Say that this life has begun; one before it under the same name is over with that."""
        unfinished = self.own.with_suffix(".new")
        unfinished.write_text(f"{self._life.incarnation} {self._life.pid}\n")
        os.replace(unfinished, self.own)

    def sign(self) -> None:
        """Say that this process still does its work."""
        os.utime(self.own)

    def lives(self) -> list[Life | None]:
        """The last life that each has entered; None where there was none yet."""
        return [_read(path) for path in self._files]

    def lost(self, members: list[Life]) -> str:
        """Who of the members is gone, in words; empty where all are there."""
        for name, member, life in zip(self.names, members, self.lives(), strict=True):
            if life != member:
                return f"{name} has begun anew"
            if not _lives(member.pid):
                return f"{name} (process {member.pid}) is gone"
        return ""

    def silent(self) -> tuple[str, float]:
        """Who has not signed for longer than ``silent_s``, and for how long; an empty name where nobody."""
        now_s = time.time()
        for name, path in zip(self.names, self._files, strict=True):
            silent_s = now_s - path.stat().st_mtime
            if silent_s > self.silent_s:
                return name, silent_s
        return "", 0.0


def _read(path: Path) -> Life | None:
    try:
        incarnation, pid = path.read_text().split()
    except FileNotFoundError:
        return None
    return Life(int(incarnation), int(pid))


def _lives(pid: int) -> bool:
    """A zombie has died, though nobody has taken note of it yet."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
