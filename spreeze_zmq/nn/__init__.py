"""Torch modules on flat rows, and the arithmetic of losses on them, native where that is faster."""

from __future__ import annotations

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
