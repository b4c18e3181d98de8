"""Plain torch modules on flat rows, and what they are in plain values. No reinforcement learning in here."""

from __future__ import annotations

from spreeze_zmq.nn.layers import Append, Conv, Dueling, Number
from spreeze_zmq.nn.networks import ACTIVATIONS, Ensemble, describe, ensemble, mlp, nature_cnn
from spreeze_zmq.nn.training import PeriodicCopy, polyak, random_shift

__all__ = [
    "ACTIVATIONS",
    "Append",
    "Conv",
    "Dueling",
    "Ensemble",
    "Number",
    "PeriodicCopy",
    "describe",
    "ensemble",
    "mlp",
    "nature_cnn",
    "polyak",
    "random_shift",
]
