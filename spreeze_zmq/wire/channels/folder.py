"""Private folders for a run's ipc sockets, and locks that give each endpoint to one process.

ZeroMQ lets a second process bind an ipc path, which silently takes it from the first, and its socket files
outlive a SIGKILL. Therefore a run's folder, and each endpoint in it, belongs to the process that holds a
``flock`` on a file beside it; the kernel releases the lock when that process ends, also by SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from spreeze_zmq.base.endpoints import MAX_IPC_BYTES, ipc_endpoint
from spreeze_zmq.base.errors import ChannelError

#: Longest name of a channel, in bytes; a folder with a longer path than that allows is not used.
MAX_CHANNEL_BYTES = 40
_MAX_NAME_BYTES = 24
_LOCK = "lock"
_UNFINISHED = ".new-"
_UNFINISHED_AGE_S = 60.0


class Claim:
    """One path that this process owns exclusively until ``release`` or its death."""

    def __init__(self, path: Path, lock_path: Path, descriptor: int) -> None:
        self.path = path
        self._lock_path = lock_path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> Claim:
        """Claim ``path`` by a lock on ``PATH.lock``, which holds this process's id.

        Raises:
            ChannelError: another process, named in the message, holds it; or the lock cannot be written.
        """
        lock_path = path.with_name(path.name + ".lock")
        try:
            descriptor = _lock(lock_path)
        except OSError as error:
            raise ChannelError(f"{lock_path}: cannot be locked: {error.strerror}") from error
        if descriptor is None:
            raise ChannelError(
                f"{path} is taken by process {_holder(lock_path)}; stop that one or choose another endpoint"
            )
        return cls(path, lock_path, descriptor)

    def lend(self) -> None:
        """Have the lock name no process of this machine: one of another has the name."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"of another machine", 0)

    def release(self) -> None:
        """Remove the socket and its lock file, then unlock it."""
        if self._descriptor is None:
            return
        for path in (self.path, self._lock_path):
            if not path.is_dir():
                path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None


def _lock(path: Path, *, create: bool = True) -> int | None:
    """An open, locked descriptor of ``path``; None if another process holds the lock."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _still_there(path, descriptor):  # the former holder removed it between open and flock
                os.close(descriptor)
                continue
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(lock_path: Path) -> str:
    try:
        return lock_path.read_text() or "unknown"
    except OSError:
        return "unknown"


def _pid_in(folder: Path, name: str) -> int | None:
    pid = _holder(folder / f"{name}.lock")
    return int(pid) if pid.isdecimal() else None


class SocketFolder:
    """A folder of mode 0700 for the ipc sockets of one run, locked by its owner."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def create(cls, name: str) -> SocketFolder:
        """Create a folder for the run ``name`` in ``$XDG_RUNTIME_DIR`` or, if that is unfit, in ``/tmp``.

        Raises:
            ChannelError: in both, socket paths would be too long or other users would have access.
        """
        short = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:_MAX_NAME_BYTES] or "run"
        unfit = []
        for place in _places():
            path = place / f"{short}-{secrets.token_hex(4)}"
            longest = len(os.fsencode(path)) + 1 + MAX_CHANNEL_BYTES
            if longest > MAX_IPC_BYTES:
                unfit.append(
                    f"{place}: sockets in it would have paths of {longest} bytes, at most {MAX_IPC_BYTES}"
                )
                continue
            try:
                _own(place)
                return cls(path, _create_locked(path))
            except (OSError, ChannelError) as error:
                unfit.append(f"{place}: {error}")
        raise ChannelError("no place for the run's sockets: " + "; ".join(unfit))

    @classmethod
    def sweep(cls) -> list[Path]:
        """Remove the folders of dead runs, which no process has locked; returns their paths. A folder without
        a lock file was removed while a dying process still made a file in it.
        """
        removed = []
        for path in _folders():
            if path.name.startswith(_UNFINISHED) and _age_s(path) < _UNFINISHED_AGE_S:
                continue
            try:
                descriptor = _lock(path / _LOCK, create=False)
            except FileNotFoundError:
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
                continue
            except OSError:
                descriptor = None
            if descriptor is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
                removed.append(path)
        return removed

    @staticmethod
    def is_held(path: Path) -> bool:
        """Whether a living process owns the folder at ``path``; changes nothing."""
        try:
            descriptor = os.open(
                path / _LOCK, os.O_RDONLY | os.O_NONBLOCK
            )  # somebody may have put a FIFO there
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

    def endpoint(self, channel: str) -> str:
        """The ipc endpoint of ``channel`` in this folder."""
        return ipc_endpoint(self.path / channel)

    def holder(self, name: str) -> int | None:
        """Id of the last process that claimed ``name`` in this folder; None if there is none."""
        return _pid_in(self.path, name)

    @staticmethod
    def owner(path: Path, name: str) -> int | None:
        """Id of the living process that has claimed ``name`` in a folder; None if there is none."""
        pid = _pid_in(path, name)
        return pid if pid is not None and os.path.exists(f"/proc/{pid}") else None

    def removed(self, names: Iterable[str]) -> list[str]:
        """Those of the sockets ``names`` that living processes have claimed and that are not there; where the
        lock of the folder is gone, only that.
        """
        if self._descriptor is not None and not _still_there(self.path / _LOCK, self._descriptor):
            return [_LOCK]
        claimed = [name for name in names if self.owner(self.path, name) is not None]
        return [name for name in claimed if not os.path.lexists(self.path / name)]

    def touch(self) -> None:
        """Make all files of the folder new, for cleaners that remove what is old."""
        for path in (self.path, *self.path.iterdir()):
            with contextlib.suppress(OSError):
                os.utime(path, follow_symlinks=False)

    def remove(self) -> None:
        """Remove the folder with its contents, then unlock it. Only the owner may call this."""
        if self._descriptor is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = None


def _places() -> Iterator[Path]:
    """The parent folders of this user's socket folders, best first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for parent in (runtime, "/tmp"):
        if os.path.isabs(parent) and os.path.isdir(parent):
            yield Path(parent) / f"spreeze-{os.getuid()}"


def _folders() -> Iterator[Path]:
    for place in _places():
        if place.is_dir() and not place.is_symlink():
            yield from (path for path in place.iterdir() if path.is_dir() and not path.is_symlink())


def _age_s(path: Path) -> float:
    """Seconds since a folder changed; 0 for one whose owner has just finished or removed it."""
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _own(place: Path) -> None:
    """Create ``place``, or check that it is a real folder that only this user can enter."""
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ChannelError("exists, but is not a folder of this user with mode 0700")


def _create_locked(path: Path) -> int:
    """Create ``path`` by a rename after locking it, so that no concurrent ``sweep`` removes it."""
    unfinished = path.with_name(_UNFINISHED + path.name)
    unfinished.mkdir(mode=0o700)
    descriptor = _lock(unfinished / _LOCK)
    if descriptor is None:
        raise ChannelError(f"{unfinished} was locked by another process")
    unfinished.rename(path)
    return descriptor
