"""Policy files: safetensors with the policy's arrays, and its fields as JSON in the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import replacing

#: Identifies a policy file; the number goes up when older readers would misread it.
FILE_FORMAT = "spreeze_zmq.policy.1"
_FIELDS = ("description", "version", "extras")


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
    with replacing(path, sync=True) as temporary:
        temporary.write_bytes(content)


def read_file(path: Path | str) -> tuple[dict[str, Any], dict[str, NDArray[Any]], dict[str, str]]:
    """Fields, arrays and metadata as they were written; the caller must check their contents.

    Raises:
        InputError: there is no such file, or it holds no policy of this format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            about: dict[str, str] = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read as a policy: {error}") from error
    if about.get("format") != FILE_FORMAT:
        raise InputError(f"{path} is of format {about.get('format')!r}, expected {FILE_FORMAT!r}")
    try:
        fields = {name: json.loads(about[name]) for name in _FIELDS}
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} holds no whole policy: {error}") from error
    return fields, arrays, {name: text for name, text in about.items() if name not in (*_FIELDS, "format")}
