"""Writes a file beside its place and moves it there when it is complete: a reader never sees half of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

#: Prefix of half-written files.
TEMPORARY = ".writing-"


@contextlib.contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """The path at which to write a file, which then replaces ``path``; nothing is left where that fails.

    Args:
        path: where the file appears; the one to write has the same suffix, and a name of this process.
        sync: whether the whole file or the earlier one is there even after a power failure.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        yield temporary
        if sync:
            _sync(temporary)
        os.replace(temporary, path)
        if sync:
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
