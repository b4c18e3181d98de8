"""Opens a run's logs, and keeps each within a size by dropping its middle while its process writes on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spreeze_zmq.base.errors import DiskFull, InputError
from spreeze_zmq.base.files import APPENDS

#: Largest size of a log on the disk, and what is kept of a larger one, at its beginning and at its end.
MOST_BYTES, HEAD_BYTES, TAIL_BYTES = 256 << 20, 1 << 20, 16 << 20
CHECK_S = 60.0
#: Bytes of a block of ``stat``.
BLOCK_BYTES = 512
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class LogWatch:
    """Looks at the logs of a folder once a minute. The middle of a large one becomes a hole: no byte moves,
    so those that append to it and those that know places in it see no difference.

    Args:
        folder: with the logs.
        most: bytes that each may have on the disk.
        clock: monotonic seconds.
    """

    def __init__(
        self, folder: Path, most: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._most, self._clock = folder, most, clock
        self._check_s, self._said = 0.0, set[Path]()

    def news(self) -> str:
        """A line for logs that are too large for the first time; empty for none."""
        now_s = self._clock()
        if now_s < self._check_s:
            return ""
        self._check_s = now_s + CHECK_S
        return "; ".join(self._shortened())

    def _shortened(self) -> Iterator[str]:
        """Shorten the logs that are too large; a line for each where it is the first time."""
        for path in sorted(self._folder.glob("*.log")):
            line = ""
            with contextlib.suppress(OSError):  # it is gone, or another user's
                about = path.lstat()
                if about.st_blocks * BLOCK_BYTES > self._most:
                    line = self._shorten(path, about.st_size)
            if line and path not in self._said:
                self._said.add(path)
                yield line

    def _shorten(self, path: Path, size: int) -> str:
        """Free the disk of a log's middle; what was done, in words. Raises OSError if it cannot be opened."""
        large = f"{path} has more than {self._most >> 20} MiB"
        head, tail = min(HEAD_BYTES, self._most // 4), min(TAIL_BYTES, self._most // 4)
        opened = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            punch_hole(opened, head, size - head - tail)
        except OSError as error:
            why = f"its disk cannot free a part of it ({error.strerror})"
            return f"{large}, and {why}: print less, or make room"
        finally:
            os.close(opened)
        return f"{large}: its middle is dropped now and then and reads as zeros; beginning and end are kept"


def punch_hole(descriptor: int, start: int, length: int) -> None:
    """Give the disk blocks of a part of a file back, which reads as zeros then; the file's size stays.

    Raises:
        OSError: the file system cannot do that.
    """
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_log(name: str, path: Path, command: Sequence[str]) -> tuple[int, int, int]:
    """Two descriptors of the log, for standard error and standard output, and the byte after the header line
    that is written here.

    Raises:
        DiskFull: its disk is full.
        InputError: it cannot be written.
    """
    opened: list[int] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            opened.append(os.open(path, APPENDS, 0o644))
        header = f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(command)}\n"
        os.write(opened[0], header.encode())
        return opened[0], opened[1], os.fstat(opened[0]).st_size
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        if DiskFull.cause(error):
            raise DiskFull(path.parent.parent) from error
        raise InputError(f"{name}: its log {path} cannot be written: {error.strerror}") from error
