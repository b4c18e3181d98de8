"""What one process of a machine makes or measures, while the others wait for it and say so."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from spreeze_zmq.base.files import replacing

log = logging.getLogger("spreeze")

#: What flock says on a file system that has no locks, as Lustre and some network file systems.
HAS_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
#: The first bytes of a library and of a program.
ELF = b"\x7fELF"
#: Longest time that a compiler takes for a program, on a slow machine.
BUILD_S = 600.0
#: Time between two looks at whether another process has made it.
POLL_S = 0.2


def digest(*parts: str | bytes) -> str:
    """A name for what is made of these parts."""
    sums = (hashlib.sha256(part.encode() if isinstance(part, str) else part).digest() for part in parts)
    return hashlib.sha256(b"".join(sums)).hexdigest()[:24]


@contextlib.contextmanager
def alone(
    path: Path, doing: str = "", say: Callable[[str], object] = log.info, *, most_s: float
) -> Iterator[None]:
    """One process makes a file while the others wait for it; where the file system has no locks, or the one
    takes too long, each makes it.

    Args:
        path: of the file.
        doing: what the one does meanwhile, for those that wait; empty where that takes no time.
        say: called with a line before a wait, and where that ends in vain.
        most_s: how long one process is waited for. It may be stopped, and the lock of a machine that was lost
            may stay.

    Raises:
        OSError: the file's folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a") as lock:
        try:
            _wait_for(lock, most_s, doing, say)
        except OSError as error:
            if error.errno not in HAS_NO_LOCKS:
                raise
        yield


def _wait_for(lock: TextIO, most_s: float, doing: str, say: Callable[[str], object]) -> None:
    """Lock a file, or wait in vain for the one that has locked it. Each of those that do so one after another
    has its time: the file's says when the last one began.
    """
    seen_ns, until_s = -1, 0.0
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.utime(lock.fileno())
            return
        if seen_ns < 0 and doing:
            say(f"waiting for another process of this user, which is {doing}")
        if (began_ns := os.fstat(lock.fileno()).st_mtime_ns) != seen_ns:
            seen_ns, until_s = began_ns, time.monotonic() + most_s
        elif time.monotonic() >= until_s:
            say(
                f"another process of this user has had {lock.name} for {most_s:.0f} s and is not waited for "
                "any longer: end it if it is stopped, or delete that file"
            )
            return
        time.sleep(POLL_S)


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
    path: Path,
    make: Callable[[Path], object],
    doing: str,
    say: Callable[[str], object] = log.info,
    *,
    most_s: float = BUILD_S,
) -> Path:
    """``path``, a library or a program that appears only when it is complete, and outlives a power failure.
    Samplers that ``spreeze new`` has copied call this: what they give keeps its place.

    Args:
        path: of the file; where it is missing, one process makes it and the others wait.
        make: writes the file to the path that it is given.
        doing: what ``make`` does, for those that wait.
        say: that of :func:`alone`.
        most_s: the longest that ``make`` takes.

    Raises:
        OSError: the folder cannot be written; or whatever ``make`` raises.
    """
    if is_compiled(path):
        return path
    with alone(path, doing, say, most_s=most_s):
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
