"""Infos of a batch as ``gymnasium.vector`` has them: arrays ``[N, ...]`` by name, and their masks ``[N]``."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def scalars(info: Mapping[str, Any], row: int) -> dict[str, float]:
    """The finite numbers and flags of one environment in a batch's info (``gymnasium.vector``'s layout)."""
    found: dict[str, float] = {}
    for name, values in info.items():
        array = np.asarray(values) if not isinstance(values, Mapping) else None
        if array is None or name.startswith("_") or array.ndim != 1 or array.dtype.kind not in "biuf":
            continue
        if f"_{name}" in info and not info[f"_{name}"][row]:
            continue
        if math.isfinite(value := float(array[row])):
            found[name] = value
    return found


def gathered(rows: Mapping[int, Mapping[str, float]], ids: NDArray[np.intp]) -> dict[str, Any]:
    """Scalars of some environments, by row, as the info of a batch of the environments ``ids`` ``[B]``."""
    info: dict[str, Any] = {}
    for place, row in enumerate(ids.tolist()):
        for name, value in rows.get(row, {}).items():
            if name not in info:
                info[name], info[f"_{name}"] = np.zeros(len(ids)), np.zeros(len(ids), np.bool_)
            info[name][place], info[f"_{name}"][place] = value, True
    return info
