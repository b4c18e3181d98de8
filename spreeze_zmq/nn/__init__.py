"""Torch modules on flat rows, native where that is faster. No reinforcement learning in here."""

from __future__ import annotations

from spreeze_zmq.nn.fused import adam_step, laid_flat, polyak, squashed_normal
from spreeze_zmq.nn.layers import Append, Conv, Dueling, Number
from spreeze_zmq.nn.native import code_for, into_grad
from spreeze_zmq.nn.native_choice import choose, leave_to_torch
from spreeze_zmq.nn.networks import ACTIVATIONS, Ensemble, describe, ensemble, mlp, nature_cnn
from spreeze_zmq.nn.training import PeriodicCopy, random_shift

__all__ = [
    "ACTIVATIONS",
    "Append",
    "Conv",
    "Dueling",
    "Ensemble",
    "Number",
    "PeriodicCopy",
    "adam_step",
    "choose",
    "code_for",
    "describe",
    "ensemble",
    "into_grad",
    "laid_flat",
    "leave_to_torch",
    "mlp",
    "nature_cnn",
    "polyak",
    "random_shift",
    "squashed_normal",
]
