"""JSON that any program can read: no NaN, no numpy; files are replaced atomically."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """The value in JSON's types; NaN and the infinities become None, arrays become lists.

    Raises:
        TypeError: a part of it has no JSON type.
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
    """Write ``value`` in :func:`plain` form, atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)
