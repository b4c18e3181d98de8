"""JSON as every program reads it: no NaN, no numpy, and a file that is there in full or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """The same value in JSON's own types; NaN and the infinities become None, arrays become lists.

    Raises:
        TypeError: something in it has no meaning in JSON.
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
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, which need not be imported for it
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in JSON: {value!r:.80}")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` in :func:`plain` form; whoever reads the file finds the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)
