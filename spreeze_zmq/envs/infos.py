"""The infos of a batch: one dictionary for all environments, arrays with a row for each, and their masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def select(info: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """The info of the environments of ``mask`` alone; zeros in the other rows."""
    chosen: dict[str, Any] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            chosen[key] = select(value, mask)
        else:
            chosen[key] = np.zeros_like(value)
            chosen[key][mask] = value[mask]
    return chosen


def overlay(last: dict[str, Any], begun: dict[str, Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
    """The info of a step in which episodes ended: in their rows that of the reset, elsewhere the step's."""
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
