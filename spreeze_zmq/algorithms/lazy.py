"""``torch`` as a module that is imported at its first use: validating a topology and sampling need no torch,
whose import takes more than a second.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class LazyModule:
    """Imports a module when its first attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

__all__ = ["torch"]
