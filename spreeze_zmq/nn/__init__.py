"""Torch modules on flat rows, and the arithmetic of losses on them, native where that is faster.

The names are imported at the first use of one, since sampling and reading a topology need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spreeze_zmq.nn.atoms import divergence, end_masses, expectation, project
    from spreeze_zmq.nn.flops import CountedProducts, most_flops_per_s, multiply_limits
    from spreeze_zmq.nn.fused import Adam, PeriodicCopy, laid_flat, normal_log_prob, polyak, squashed_normal
    from spreeze_zmq.nn.layers import Append, Conv, Dueling, Number, random_shift
    from spreeze_zmq.nn.native_calls import into_grad
    from spreeze_zmq.nn.native_choice import choose, leave_to_torch
    from spreeze_zmq.nn.networks import (
        ACTIVATIONS,
        NATURE,
        SMALL,
        Ensemble,
        cnn,
        describe,
        ensemble,
        mlp,
    )
    from spreeze_zmq.nn.recurrent import Recurrent, remembered, unroll

__all__ = [
    "ACTIVATIONS",
    "NATURE",
    "SMALL",
    "Adam",
    "Append",
    "Conv",
    "CountedProducts",
    "Dueling",
    "Ensemble",
    "Number",
    "PeriodicCopy",
    "Recurrent",
    "choose",
    "cnn",
    "describe",
    "divergence",
    "end_masses",
    "ensemble",
    "expectation",
    "into_grad",
    "laid_flat",
    "leave_to_torch",
    "mlp",
    "most_flops_per_s",
    "multiply_limits",
    "normal_log_prob",
    "polyak",
    "project",
    "random_shift",
    "remembered",
    "squashed_normal",
    "unroll",
]

_MODULES = ("atoms", "flops", "fused", "layers", "native_calls", "native_choice", "networks", "recurrent")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in _MODULES:
        found = vars(importlib.import_module(f"{__name__}.{module}"))
        globals().update({each: found[each] for each in __all__ if each in found})
    return globals()[name]
