"""torch and the networks made of it, imported when first used: a topology is validated without the second and
more that importing torch takes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class LazyModule:
    """Stands for a module until somebody asks it for an attribute."""

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
