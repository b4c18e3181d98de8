"""What a Python value is to those who compare it: whose code, and where its contents are."""

from __future__ import annotations

import random
import sys
from threading import local
from types import ModuleType
from typing import Any

import numpy as np
import torch

from spreeze_zmq.nn.native.recording import AUTHOR, STANDARD, origin

#: The dicts of a module that hold its parts.
PARTS = ("_parameters", "_buffers", "_modules")


def global_hooks() -> list[dict[Any, Any]]:
    """Those of all modules."""
    found = vars(torch.nn.modules.module).items()
    return [value for name, value in found if name.startswith("_global_") and isinstance(value, dict)]


def origin_of(value: Any) -> str:
    """Whose code a class, function or module is."""
    module = value if isinstance(value, ModuleType) else sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        name = module.__name__ if isinstance(module, ModuleType) else ""
        return STANDARD if name.split(".")[0] in sys.stdlib_module_names and name != "__main__" else AUTHOR
    return origin(file)


def variables_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object by name; None where it has no dict of them."""
    try:
        found = object.__getattribute__(value, "__dict__") if type(value) is not local else value.__dict__
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def is_part(name: str, value: object) -> bool:
    """Whether an attribute is one of a module's own dicts, which it never replaces."""
    return name in PARTS or (name.startswith("_") and "hook" in name and isinstance(value, dict))


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are one piece of memory; those of a sparse one are several."""
    return tensor.layout == torch.strided


def is_buffer(value: object) -> bool:
    """Whether a value is bytes, or an array, that can be compared as bytes."""
    try:
        memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return isinstance(value, np.ndarray)
    return True


class Bytes:
    """The contents of an object with a buffer, read as numpy's arrays are."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def tobytes(self) -> bytes:
        return bytes(memoryview(self._value))


def is_moving(value: object) -> bool:
    """Whether reading a value changes it, as that of iterators, files and random generators."""
    kind = type(value)
    return (
        hasattr(kind, "__next__")
        or isinstance(value, random.Random)
        or kind.__module__.startswith("numpy.random")
    )


def with_article(value: object) -> str:
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"
