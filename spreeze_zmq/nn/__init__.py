"""Torch modules on flat rows, and the arithmetic of losses on them, native where the library loads.

The names are imported at the first use of one, since sampling and reading a topology need no torch; so is the
``torch`` here, for the files of algorithms.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from spreeze_zmq.nn.adam import *
    from spreeze_zmq.nn.atoms import *
    from spreeze_zmq.nn.described import *
    from spreeze_zmq.nn.fused import *
    from spreeze_zmq.nn.layers import *
    from spreeze_zmq.nn.native_calls import *
    from spreeze_zmq.nn.native_choice import *
    from spreeze_zmq.nn.networks import *
    from spreeze_zmq.nn.parts import *

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "Adam",
    "Append",
    "Conv",
    "Dueling",
    "Ensemble",
    "Number",
    "PartForm",
    "Parts",
    "PeriodicCopy",
    "Projected",
    "Recurrent",
    "allow_tf32",
    "choose",
    "clamped",
    "cnn",
    "convolutions",
    "describe",
    "divergence",
    "dtypes_of",
    "end_masses",
    "ensemble",
    "expectation",
    "has_bf16",
    "has_own_code",
    "into_grad",
    "laid_flat",
    "leave_to_torch",
    "memories",
    "mlp",
    "normal_log_prob",
    "polyak",
    "project",
    "projection",
    "random_shift",
    "remembered",
    "squashed_normal",
    "torch",
    "unroll",
]

_MODULES = (
    "adam",
    "atoms",
    "described",
    "fused",
    "layers",
    "native_calls",
    "native_choice",
    "networks",
    "parts",
)


class LazyModule:
    """Imports a module, which may take more than a second, when its first attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if not TYPE_CHECKING:  # so that mypy knows every name's type
    torch = LazyModule("torch")

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        for module in _MODULES:
            found = vars(importlib.import_module(f"{__name__}.{module}"))
            globals().update({each: found[each] for each in __all__ if each in found})
        return globals()[name]
