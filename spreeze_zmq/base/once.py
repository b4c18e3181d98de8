"""What one process of a machine makes or measures, while the others wait for it and say so."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from spreeze_zmq.base.files import replacing

log = logging.getLogger("spreeze")

#: What flock says on a file system that has no locks, as Lustre and some network file systems.
HAS_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
#: The first bytes of a library and of a program.
ELF = b"\x7fELF"


def digest(*parts: str | bytes) -> str:
    """A name for what is made of these parts."""
    sums = (hashlib.sha256(part.encode() if isinstance(part, str) else part).digest() for part in parts)
    return hashlib.sha256(b"".join(sums)).hexdigest()[:24]


@contextlib.contextmanager
def alone(path: Path, doing: str = "", say: Callable[[str], object] = log.info) -> Iterator[None]:
    """One process makes a file while the others wait for it; where the file system has no locks, each makes
    it.

    Args:
        path: of the file.
        doing: what the one does meanwhile, for those that wait; empty where that takes no time.
        say: called with a line before a wait.

    Raises:
        OSError: the file's folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if doing:
                    say(f"waiting for another process of this user, which is {doing}")
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in HAS_NO_LOCKS:
                raise
        yield


def is_compiled(path: Path) -> bool:
    """Whether a file begins as a library or a program does. After a power failure one may be empty or hold
    zeros; one that cannot be loaded for another reason, such as a cache that forbids it, is not made again.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(ELF)) == ELF
    except FileNotFoundError:
        return False


def made_once(
    path: Path, make: Callable[[Path], object], doing: str, say: Callable[[str], object] = log.info
) -> Path:
    """``path``, a library or a program that appears only when it is complete, and outlives a power failure.

    Args:
        path: of the file; where it is missing, one process makes it and the others wait.
        make: writes the file to the path that it is given.
        doing: what ``make`` does, for those that wait.
        say: that of :func:`alone`.

    Raises:
        OSError: the folder cannot be written; or whatever ``make`` raises.
    """
    if is_compiled(path):
        return path
    with alone(path, doing, say):
        if not is_compiled(path):
            with replacing(path, sync=True, place=_place_first) as beside:
                make(beside)
    return path


def _place_first(beside: Path, path: Path) -> None:
    """Give a file its name unless another one has it: that of a machine without the same locks. Where it is
    loaded already, some network file systems would take it from those who have it, and they die of SIGBUS.
    """
    with contextlib.suppress(OSError):  # without hard links, or where what is there was torn
        os.link(beside, path)
        return
    if not is_compiled(path):
        os.replace(beside, path)
