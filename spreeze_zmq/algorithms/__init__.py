"""The algorithms, by name or by ``module:Class``. Importing this package imports no torch."""

from __future__ import annotations

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.options import (
    ReplayOptions,
    RolloutOptions,
    TrainingOptions,
    options_from,
)
from spreeze_zmq.algorithms.registry import (
    check,
    get,
    has_part_encoders,
    make,
    memory_size,
    names,
    suited,
    takes_vectors,
)
from spreeze_zmq.algorithms.sequences import SequenceOptions
from spreeze_zmq.base.schema import option, with_default

__all__ = [
    "Algorithm",
    "Loss",
    "Networks",
    "ReplayOptions",
    "RolloutOptions",
    "SequenceOptions",
    "TrainingOptions",
    "check",
    "get",
    "has_part_encoders",
    "make",
    "memory_size",
    "names",
    "option",
    "options_from",
    "suited",
    "takes_vectors",
    "with_default",
]
