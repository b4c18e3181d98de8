"""Infos of a batch as ``gymnasium.vector`` has them: arrays ``[N, ...]`` by name, and their masks ``[N]``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def select(info: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """A copy of ``info`` with zeros in the rows outside ``mask`` ``[N]``."""
    chosen: dict[str, Any] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            chosen[key] = select(value, mask)
        else:
            chosen[key] = np.zeros_like(value)
            chosen[key][mask] = value[mask]
    return chosen


def overlay(last: dict[str, Any], begun: dict[str, Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
    """Rows of ``ended`` ``[N]`` from the reset's info ``begun``, the others from the step's ``last``."""
    going = ~ended
    info = select(last, going) if going.any() else {}
    for key, value in begun.items():
        if key not in info:
            info[key] = value
        elif isinstance(value, dict):
            info[key] = overlay(info[key], value, ended)
        else:
            info[key][ended] = value[ended]
    return info
