"""Writes that wait while a disk is full: somebody may be making room."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from spreeze_zmq.base.errors import DiskFull

log = logging.getLogger("spreeze")

#: Longest wait for room on a disk, shorter than any heartbeat, and the time between two tries.
PATIENCE_S, RETRY_S = 5.0, 0.2

T = TypeVar("T")


def patient(write: Callable[[], T], path: Path) -> T:
    """Do ``write``, which may be done again, while the disk of ``path`` is full, at most ``PATIENCE_S``; a
    line says that it has waited.

    Raises:
        Exception: what ``write`` raises.
    """
    began_s = time.monotonic()
    waits = False
    while True:
        try:
            result = write()
        except Exception as error:
            if not DiskFull.caused(error) or time.monotonic() - began_s > PATIENCE_S:
                raise
            waits = True
            time.sleep(RETRY_S)
            continue
        if waits:
            log.warning("the disk of %s was full for %.1f s", path, time.monotonic() - began_s)
        return result


def append(descriptor: int, content: bytes, path: Path) -> None:
    """Write all of ``content`` to a file that was opened to append to, by as many :func:`patient` writes as
    the disk takes.

    Raises:
        OSError: it is full for too long, or cannot be written.
    """
    rest = memoryview(content)
    while rest:
        left = rest
        rest = left[patient(lambda: os.write(descriptor, left), path) :]  # noqa: B023
