"""Checked reads from the tables of a policy's description, which others wrote and which may hold anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def count(table: Mapping[str, Any], name: str) -> int:
    """The integer ``name``, at least 1. Raises KeyError where it is missing, ValueError for anything else."""
    return _count(name, table[name])


def counts(table: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The list ``name`` of integers, each at least 1. Raises as :func:`count`."""
    values = table[name]
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} is {values!r:.60}, expected a list of numbers")
    return tuple(_count(name, value) for value in values)


def number(table: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """The finite number ``name``, or ``default`` where it is missing.

    Raises KeyError where both are missing, ValueError for anything but a finite number.
    """
    value = table[name] if default is None else table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.60}, expected a finite number")
    return float(value)


def numbers_in_order(table: Mapping[str, Any], lower: str, upper: str) -> tuple[float, float]:
    """Two finite numbers, the first not above the second. Raises as :func:`number`."""
    low, high = number(table, lower), number(table, upper)
    if low > high:
        raise ValueError(f"{lower} {low} is above {upper} {high}")
    return low, high


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r:.60}, expected an integer of at least 1")
    return value
