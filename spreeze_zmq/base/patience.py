"""Writes that wait while a disk is full: somebody may be making room."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from spreeze_zmq.base.errors import DiskFull

log = logging.getLogger("spreeze")

#: Longest wait for room on a disk, so short that no process seems to stand still meanwhile, which would take
#: 5 s; that of whoever owes other machines a beat, without which one is lost after 5 s; and the time between
#: two tries.
PATIENCE_S, BETWEEN_BEATS_S, RETRY_S = 4.5, 3.0, 0.2

T = TypeVar("T")


def patient(write: Callable[[], T], path: Path, most_s: float = math.inf) -> T:
    """Do ``write`` while the disk of ``path`` is full, for ``PATIENCE_S`` or, if that is less, ``most_s``; a
    line says that it waited. It may be done again, or goes on where it was.

    Raises:
        Exception: what ``write`` raises; where a full disk led to that, its OSError names a file.
    """
    began_s = time.monotonic()
    waits = False
    while True:
        try:
            result = write()
        except Exception as error:
            if (cause := DiskFull.cause(error)) is None:
                raise
            if time.monotonic() - began_s > min(PATIENCE_S, most_s):
                cause.filename = cause.filename or str(path)
                raise
            waits = True
            time.sleep(RETRY_S)
            continue
        if waits:
            log.warning("the disk of %s was full for %.1f s", path, time.monotonic() - began_s)
        return result


def make_folder(path: Path, *, parents: bool = False) -> None:
    """Make a folder where it is missing, and with ``parents`` those above it: on most disks it takes a block.

    Raises:
        OSError: it cannot be made, or the disk is full for too long.
    """
    patient(lambda: path.mkdir(parents=parents, exist_ok=True), path)


def append(descriptor: int, content: bytes | memoryview, path: Path) -> None:
    """Write all of ``content`` to the end of an open file; waits for room as :func:`patient` does.

    Raises:
        OSError: there is not room for all of it in time, or it cannot be written.
    """
    rest = memoryview(content)

    def write_rest() -> None:
        nonlocal rest
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    patient(write_rest, path)
