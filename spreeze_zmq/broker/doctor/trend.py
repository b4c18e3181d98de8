"""Numbers of a journal, which may be anybody's: single ones, and how one goes over a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

#: Larger numbers are refused in every message, too; their squares must not overflow.
LARGEST = 1e15
#: Most values of a curve that are kept; of a longer one every second is dropped.
MOST_POINTS = 400


@dataclass
class Trend:
    """A figure over the whole run, thinned evenly."""

    values: list[float] = field(default_factory=list)
    _every: int = 1
    _skipped: int = 0

    def add(self, value: Any) -> None:
        """Add the next value; what is no finite number is left out."""
        if not isinstance(value, int | float) or not abs(value) <= LARGEST:
            return
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.values.append(float(value))
        if len(self.values) > MOST_POINTS:
            del self.values[1::2]
            self._every *= 2

    def thirds(self) -> tuple[list[float], list[float], list[float]]:
        """The values of the first, the middle and the last third."""
        size = max(1, len(self.values) // 3)
        return self.values[:size], self.values[size:-size], self.values[-size:]


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    return fmean(values), pstdev(values) / math.sqrt(len(values))


def numbers(about: Any) -> dict[str, float]:
    """The finite numbers of a map, or of what should be one."""
    items: Iterable[tuple[str, Any]] = about.items() if isinstance(about, Mapping) else ()
    return {
        name: float(value)
        for name, value in items
        if isinstance(value, int | float) and abs(value) <= LARGEST
    }


def whole_numbers(values: Any) -> tuple[int, ...]:
    """A list of whole numbers, such as a shape; empty for anything else."""
    fits = isinstance(values, list) and all(type(value) is int for value in values)
    return tuple(values) if fits else ()
