"""Private folders for a run's ipc sockets, each of one process, which holds its lock (``locks``)."""

from __future__ import annotations

import contextlib
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
from spreeze_zmq.base.patience import patient
from spreeze_zmq.wire.channels.locks import (
    ELSEWHERE,
    Claim,
    Holder,
    holder_of,
    is_alive,
    is_locked,
    is_still_there,
    lock,
    lock_words,
)

#: Longest name of a channel, in bytes; a folder with a longer path than that allows is not used.
MAX_CHANNEL_BYTES = 40
_MAX_NAME_BYTES = 24
_LOCK = "lock"
_UNFINISHED = ".new-"
#: What may be the name of a process; anybody may send another text in its place.
_CLAIMABLE = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_UNFINISHED_AGE_S = 60.0


class SocketFolder:
    """A folder of mode 0700 for the ipc sockets of one run, locked by its owner."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._held: Claim | None = None

    def hold(self, path: Path) -> None:
        """Claim a path in the run's folder, too, as long as this one: for those who see that folder and not
        this one: other users, who may read the lock as far as they may read the run, and those on another
        machine or in another container. Some file systems know no locks; others let nobody read what is
        locked, so that it is a file of its own.
        """
        with contextlib.suppress(ChannelError):
            self._held = Claim.take(path, mode=0o644)

    @classmethod
    def create(cls, name: str) -> SocketFolder:
        """Create a folder for the run ``name`` in the first fit place: ``$XDG_RUNTIME_DIR``, ``/tmp``,
        ``$TMPDIR``, and that of the first which belongs to another user.

        Raises:
            ChannelError: none of them can be written, would keep socket paths short enough, and is closed to
                other users.
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
        unfit.append("set XDG_RUNTIME_DIR to a folder of yours with a short path")
        raise ChannelError("no place for sockets: " + "; ".join(unfit))

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
                descriptor = lock(path / _LOCK, create=False)
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
        return is_locked(path / _LOCK)

    def endpoint(self, channel: str) -> str:
        """The ipc endpoint of ``channel`` in this folder."""
        return ipc_endpoint(self.path / channel)

    @staticmethod
    def holder(path: Path, name: str) -> Holder | None:
        """Who claimed ``name`` in a folder last, alive or not; None if nobody has or could, as with a text of
        others that is the name of no file.
        """
        return holder_of(path / f"{name}.lock") if _CLAIMABLE.fullmatch(name) else None

    @classmethod
    def owner(cls, path: Path, name: str) -> int | None:
        """Id of the living process that has claimed ``name`` in a folder; None if there is none."""
        holder = cls.holder(path, name)
        return holder.pid if holder is not None and is_alive(holder.pid) else None

    def note_earlier(self, name: str) -> None:
        """Have who claims ``name`` for the first time here see that a process elsewhere has had it."""
        lock_path = self.path / f"{name}.lock"
        if not lock_path.exists():
            patient(lambda: lock_path.write_bytes(lock_words(ELSEWHERE, 0)), lock_path)

    def removed(self, names: Iterable[str]) -> list[str]:
        """Those of the sockets ``names`` that living processes have claimed and that are not there; where the
        lock of the folder is gone, only that.
        """
        if self._descriptor is not None and not is_still_there(self.path / _LOCK, self._descriptor):
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
        if self._held is not None:
            self._held.release()


def _places() -> list[Path]:
    """The parent folders of this user's socket folders, best first. A runtime folder of another user is the
    last one: ``su`` and ``sudo -E`` leave one in the environment that is removed when that user logs out; in
    a read-only container it may be root's, and all that can be written.
    """
    runtime, temporary = (os.environ.get(name, "") for name in ("XDG_RUNTIME_DIR", "TMPDIR"))
    own = filter(_is_this_users, (runtime,))
    parents = dict.fromkeys(map(Path, (*own, "/tmp", temporary, runtime)))
    return [place / f"spreeze-{os.getuid()}" for place in parents if place.is_absolute()]


def _is_this_users(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.getuid()
    except OSError:
        return False


def _folders() -> Iterator[Path]:
    for place in _places():
        with contextlib.suppress(OSError):  # it is not there, or the folder above is another user's
            if _is_private(place):
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
    if not _is_private(place):
        raise ChannelError("exists, but is not a folder of this user with mode 0700")


def _is_private(place: Path) -> bool:
    """Whether this is a real folder that only this user can enter. Raises OSError where there is none."""
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _create_locked(path: Path) -> int:
    """Create ``path`` by a rename after locking it, so that no concurrent ``sweep`` removes it."""
    unfinished = path.with_name(_UNFINISHED + path.name)
    unfinished.mkdir(mode=0o700)
    descriptor = lock(unfinished / _LOCK)
    if descriptor is None:
        raise ChannelError(f"{unfinished} was locked by another process")
    unfinished.rename(path)
    return descriptor
