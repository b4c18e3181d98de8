"""Infos and seeds as in ``gymnasium.vector``: an info is arrays ``[N, ...]`` by name, with their masks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def seeds_of(env_id: str, num_envs: int, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
    """A seed for each environment: ``seed + i``, or ``seed[i]``; ``None`` continues a random state.

    Raises:
        ValueError: there are more or fewer seeds than environments.
    """
    if seed is None or isinstance(seed, (int, np.integer)):
        return [None if seed is None else int(seed) + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"{env_id}: {num_envs} seeds expected, got {len(seed)}")
    return seed


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


def overlay(old: dict[str, Any], new: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """The info ``old`` with the rows of ``mask`` ``[N]`` replaced by those of ``new``."""
    info = select(old, ~mask) if not mask.all() else {}
    for key, value in new.items():
        if key not in info:
            info[key] = value
        elif isinstance(value, dict):
            info[key] = overlay(info[key], value, mask)
        else:
            info[key][mask] = value[mask]
    return info


def scalars(info: Mapping[str, Any], row: int) -> dict[str, float]:
    """The finite numbers and flags of one environment in a batch's info, by name."""
    numbers: dict[str, float] = {}
    for name, values in info.items():
        array = np.asarray(values) if not isinstance(values, Mapping) else None
        if array is None or name.startswith("_") or array.ndim != 1 or array.dtype.kind not in "biuf":
            continue
        if f"_{name}" in info and not info[f"_{name}"][row]:
            continue
        if math.isfinite(value := float(array[row])):
            numbers[name] = value
    return numbers


def gathered(rows: Mapping[int, Mapping[str, float]], ids: NDArray[np.intp]) -> dict[str, Any]:
    """The info of a batch of the environments ``ids`` ``[B]``, from the ``scalars`` of some of its rows."""
    info: dict[str, Any] = {}
    for place, row in enumerate(ids.tolist()):
        for name, value in rows.get(row, {}).items():
            if name not in info:
                info[name], info[f"_{name}"] = np.zeros(len(ids)), np.zeros(len(ids), np.bool_)
            info[name][place], info[f"_{name}"][place] = value, True
    return info
