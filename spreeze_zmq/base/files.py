"""Files of which a reader never sees half: they are written beside their place and moved there when complete.

JSON files hold no NaN and no numpy, so that any program can read them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

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


def append_to(path: Path) -> BinaryIO:
    """Open a file to append to and to read, made where it is missing.

    Raises:
        OSError: it is a link, which may lead anywhere, or cannot be opened.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "a+b")


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
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
