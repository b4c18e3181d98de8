"""Plain torch modules on flat rows, and what they are in plain values. No reinforcement learning in here."""

from __future__ import annotations

from spreeze_zmq.nn.augmentation import random_shift
from spreeze_zmq.nn.build import ACTIVATIONS, mlp, nature_cnn
from spreeze_zmq.nn.description import describe
from spreeze_zmq.nn.ensemble import Ensemble, ensemble
from spreeze_zmq.nn.layers import Append, Conv, Dueling, Number
from spreeze_zmq.nn.targets import PeriodicCopy, polyak

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
