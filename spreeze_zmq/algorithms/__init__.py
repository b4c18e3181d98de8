"""The algorithms by name. Importing this package imports no torch: validating a topology must stay fast."""

from __future__ import annotations

from spreeze_zmq.algorithms.interface import ActorHalf, Algorithm, Batch, CriticHalf, Environment
from spreeze_zmq.algorithms.options import nearest, options_from
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.errors import InputError

__all__ = ["ActorHalf", "Algorithm", "Batch", "CriticHalf", "Environment", "get", "names", "options_from"]

_ALGORITHMS = {algorithm.name: algorithm for algorithm in (SAC,)}


def names() -> tuple[str, ...]:
    """Every algorithm's name, sorted."""
    return tuple(sorted(_ALGORITHMS))


def get(name: str) -> Algorithm:
    """The algorithm called ``name``.

    Raises:
        InputError: there is none; the message gives the nearest names.
    """
    try:
        return _ALGORITHMS[name]
    except KeyError:
        raise InputError(f"unknown algorithm {name!r}{nearest(name, _ALGORITHMS)}") from None
