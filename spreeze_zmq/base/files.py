"""Files of which a reader never sees half: they are written beside their place and moved there when complete.

JSON files hold no NaN and no numpy, so that any program can read them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from spreeze_zmq.base.patience import patient

#: The best policy, in a run's folder.
POLICY_FILE = "policy.safetensors"
#: Prefix of half-written files.
TEMPORARY = ".writing-"


def file_name(text: str) -> str:
    """A text as the name of a file or folder: others than letters, digits, dots, - and _ become _."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


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


#: How files are opened that this package appends to: a link, which may lead anywhere, is refused.
APPENDS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def append_to(path: Path) -> BinaryIO:
    """Open a file to append to and to read, made where it is missing.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    return os.fdopen(os.open(path, APPENDS, 0o666), "a+b")


def append_text(path: Path) -> TextIO:
    """The same for text, which is flushed at each end of line."""
    return os.fdopen(os.open(path, APPENDS, 0o666), "a", buffering=1, encoding="utf-8")


def read_whole(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file that may be anybody's; nobody waits for a FIFO.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no file, or is larger.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def plain(value: Any) -> Any:
    """Convert a value to JSON's types; NaN and infinities become None, arrays become lists.

    Raises:
        TypeError: a part of the value has no JSON type.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy arrays and scalars, without importing numpy
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in JSON: {value!r:.80}")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file atomically by ``value`` in :func:`plain` form."""
    text = json.dumps(plain(value), indent=1, allow_nan=False) + "\n"

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_text(text)

    patient(write, path)
