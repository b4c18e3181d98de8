"""Locks that give a name, an endpoint or a folder to one process.

ZeroMQ lets a second process bind an ipc path, which silently takes it from the first, and its socket files
outlive a SIGKILL. Therefore a run's folder, and each endpoint in it, belongs to the process that holds a
``flock`` on a file beside it; the kernel releases the lock when that process ends, also by SIGKILL.
"""

from __future__ import annotations

import fcntl
import os
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.base.patience import patient

#: Of the process of another machine in the lock of its name.
ELSEWHERE = "of another machine"
_HOLDER = re.compile(rf"(?:(\d{{1,9}})|{ELSEWHERE})(?: (\d{{1,16}}))?\n?", re.ASCII)


class Holder(NamedTuple):
    """Who has claimed a name last: the process id on this machine, and the incarnation; 0 where not known."""

    pid: int
    incarnation: int


class Claim:
    """One path that this process owns exclusively until ``release`` or its death.

    Attributes:
        path: the path.
        had_another: whether another process has owned it before and not released it.
    """

    def __init__(self, path: Path, lock_path: Path, descriptor: int, *, had_another: bool = False) -> None:
        self.path, self.had_another = path, had_another
        self._lock_path = lock_path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path, incarnation: int = 0, mode: int = 0o600) -> Claim:
        """Claim ``path`` by a lock on ``PATH.lock``, which holds this process's id, and the incarnation of a
        process that claims its name.

        Args:
            path: the path.
            incarnation: of the process; 0 for none.
            mode: of the lock's file, where that is new: only who may read it sees that ``path`` is claimed.

        Raises:
            ChannelError: another process, named in the message, holds it; or the lock cannot be written.
        """
        lock_path = path.with_name(path.name + ".lock")
        before = _text(lock_path)
        try:
            descriptor = patient(lambda: lock(lock_path, incarnation=incarnation, mode=mode), lock_path)
        except OSError as error:
            raise ChannelError(f"{lock_path}: cannot be locked: {error.strerror}") from error
        if descriptor is None:
            who = _text(lock_path).split("\n")[0]
            who = who if who.startswith(ELSEWHERE) else who.partition(" ")[0]
            raise ChannelError(
                f"{path} is taken by process {who or 'unknown'}; stop that one or choose another endpoint"
            )
        return cls(path, lock_path, descriptor, had_another=bool(before))

    def lend(self, incarnation: int = 0) -> None:
        """Have the lock name no process of this machine: one of another has the name, with this incarnation
        if that is known.
        """
        assert self._descriptor is not None
        words = lock_words(ELSEWHERE, incarnation)
        patient(partial(_rewrite, self._descriptor, words), self._lock_path)

    def release(self) -> None:
        """Remove the socket and its lock file, then unlock it."""
        if self._descriptor is None:
            return
        for path in (self.path, self._lock_path):
            if not path.is_dir():
                path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None


def holder_of(lock_path: Path) -> Holder | None:
    """Who has claimed the name of a lock's file last, alive or not; None if nobody has."""
    if (found := _HOLDER.fullmatch(_text(lock_path))) is not None:
        return Holder(int(found[1] or 0), int(found[2] or 0))
    return Holder(0, 0) if lock_path.exists() else None


def lock_words(who: object, incarnation: int) -> bytes:
    """What the file of a lock says of its holder."""
    return f"{who} {incarnation}".encode() if incarnation else str(who).encode()


def lock(path: Path, *, create: bool = True, incarnation: int = 0, mode: int = 0o600) -> int | None:
    """An open, locked descriptor of ``path``; None if another process holds the lock."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        descriptor = os.open(path, flags, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_still_there(path, descriptor):  # the former holder removed it between open and flock
                os.close(descriptor)
                continue
            _rewrite(descriptor, lock_words(os.getpid(), incarnation))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _rewrite(descriptor: int, words: bytes) -> None:
    """Write ``words`` in the place of what a file says. It keeps its block, which on a full disk somebody
    else would take, and is cut only when they are there.
    """
    os.pwrite(descriptor, words, 0)
    os.ftruncate(descriptor, len(words))


def is_still_there(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _text(lock_path: Path) -> str:
    try:
        return lock_path.read_text(errors="replace")
    except OSError:
        return ""


def is_locked(path: Path) -> bool:
    """Whether a living process has locked a file, as that of a claim; changes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # somebody may have put a FIFO there
    except (OSError, ValueError):  # or written what can be no path
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process of this id."""
    return pid > 0 and os.path.exists(f"/proc/{pid}")
