"""Policy files: safetensors with the policy's arrays, and its fields as JSON in the metadata."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import safely, write_whole

#: Identifies a policy file; the number goes up when older readers would misread it.
FILE_FORMAT = "spreeze_zmq.policy.1"
_FIELDS = ("description", "version", "extras")
#: The arrays of a policy; a file's others are left alone.
ARRAYS = ("parameters", "action_low", "action_high", "observation_mean", "observation_std")
#: Most bytes of a file's header, and characters of a text in it that is parsed: a description travels in
#: the header of a message.
MOST_HEADER, MOST_CHARS = 16 << 20, 64 << 10
#: Likewise of an environment, with the parts of its observations.
MOST_ENVIRONMENT = 1 << 20
#: Most arrays of a file.
MOST_ARRAYS = 1_000
#: A file with more bytes than so many times its place on the disk, and its data, is not one that was written.
MOST_HOLES = 8
#: Pieces of data between holes that are looked at; a file that was written has few.
MOST_PIECES = 1_000


def write_file(
    path: Path,
    fields: Mapping[str, Any],
    arrays: Mapping[str, NDArray[np.float32]],
    metadata: Mapping[str, str],
) -> None:
    """Write ``fields`` (those of ``_FIELDS``), ``arrays`` and ``metadata`` atomically.

    Raises:
        ValueError: ``metadata`` uses a name that the file itself needs.
    """
    from safetensors.numpy import save

    about = {"format": FILE_FORMAT, **{name: json.dumps(fields[name]) for name in _FIELDS}}
    if taken := about.keys() & metadata.keys():
        raise ValueError(f"metadata may not use {', '.join(sorted(taken))}")
    content = save(dict(arrays), {**metadata, **about})
    write_whole(path, lambda beside: beside.write_bytes(content), safely)


def read_file(path: Path | str) -> tuple[dict[str, Any], dict[str, NDArray[Any]], dict[str, str]]:
    """Fields, arrays and metadata as they were written; the caller must check their contents.

    Nothing is read before its size is known: of its header, of each text in it, of its arrays on the disk.

    Raises:
        InputError: there is no such file, or it holds no policy of this format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        _check_size(Path(path))
        with safe_open(path, framework="numpy") as file:
            about: dict[str, str] = dict(file.metadata() or {})
            _check_format(about)
            names = set(file.keys())
            arrays = {name: _array(file, name) for name in ARRAYS if name in names}
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a policy: {error}") from error
    try:
        fields = {name: parsed(about[name], MOST_CHARS) for name in _FIELDS}
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} holds no whole policy: {error}") from error
    return fields, arrays, {name: text for name, text in about.items() if name not in (*_FIELDS, "format")}


def parsed(text: str, most: int = MOST_CHARS) -> Any:
    """The JSON of a text of a policy file. Raises ValueError if it is none, or longer than ``most``."""
    if len(text) > most:
        raise ValueError(f"a text of it has {len(text):,} characters, at most {most:,}")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def parsed_list(text: str) -> Any:
    """A list with a number for each episode. Raises ValueError for anything else."""
    if any(bracket in text[1:] for bracket in "[{"):
        raise ValueError("it is no list of numbers")
    return parsed(text, MOST_HEADER)


def _check_size(path: Path) -> None:
    """Raise ValueError for what is no file, has holes or a header that is too large."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no file")
        on_disk = 512 * found.st_blocks  # 0 where a file system does not say; ZFS counts seconds later
        seems_hollow = 0 < on_disk * MOST_HOLES < found.st_size
        if seems_hollow and _data_bytes(file.fileno()) * MOST_HOLES < found.st_size:
            raise ValueError(f"its {found.st_size:,} bytes are mostly holes")
        header = int.from_bytes(file.read(8), "little")
        if header > MOST_HEADER:
            raise ValueError(f"its header has {header:,} bytes, at most {MOST_HEADER:,}")
        if (arrays := file.read(header).count(b'"dtype"')) > MOST_ARRAYS:
            raise ValueError(f"it has {arrays:,} arrays, at most {MOST_ARRAYS:,}")


def _data_bytes(descriptor: int) -> int:
    """The bytes of a file that are in no hole, in its first ``MOST_PIECES`` pieces; all of it where the file
    system knows no holes. The next byte that is read is the first one.
    """
    count = end = 0
    with contextlib.suppress(OSError):  # behind the last piece there is no data
        for _ in range(MOST_PIECES):
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            count += end - begin
    os.lseek(descriptor, 0, os.SEEK_SET)
    return count


def _check_format(about: Mapping[str, str]) -> None:
    if about.get("format") != FILE_FORMAT:
        raise ValueError(f"it is of format {about.get('format')!r:.60}, expected {FILE_FORMAT!r}")


def _array(file: Any, name: str) -> NDArray[Any]:
    """One of the arrays. Raises ValueError unless it is float32."""
    if (dtype := file.get_slice(name).get_dtype()) != "F32":
        raise ValueError(f"{name} is {dtype}, expected F32")
    array: NDArray[Any] = file.get_tensor(name)
    return array
