"""``torch`` and ``nn`` as modules that are imported at their first use: validating a topology and sampling
need no torch, whose import takes more than a second.
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

    from spreeze_zmq import nn
else:
    torch = LazyModule("torch")
    nn = LazyModule("spreeze_zmq.nn")

__all__ = ["nn", "torch"]
