"""Numbers of a journal, which may be anybody's: single ones, and how one goes over a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

#: Larger numbers are refused in every message, too; their squares must not overflow.
LARGEST = 1e15
#: Most values of a curve that are kept; a longer one is thinned to half as many.
MOST_POINTS = 400
#: Values that come this much earlier than they should are kept: a second is never quite one.
EARLY = 0.1
#: Seconds that count as lately, and least seconds between two counts that are kept of them.
LATELY_S, APART_S = 600.0, 10.0


@dataclass
class Trend:
    """A figure over the whole run, thinned evenly in time, however often it came."""

    values: list[float] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _apart_s: float = 0.0

    def add(self, value: Any, t_s: float) -> None:
        """Add the next value, that of a time; what is no finite number is left out."""
        if not isinstance(value, int | float) or not abs(value) <= LARGEST:
            return
        if self._times and t_s - self._times[-1] < (1 - EARLY) * self._apart_s:
            return
        self.values.append(float(value))
        self._times.append(t_s)
        if len(self.values) > MOST_POINTS:
            self._thin()

    def _thin(self) -> None:
        self._apart_s = 2 * (self._times[-1] - self._times[0]) / MOST_POINTS
        kept, next_s = [], -math.inf
        for index, t_s in enumerate(self._times):
            if t_s >= next_s:
                kept.append(index)
                next_s = t_s + (1 - EARLY) * self._apart_s
        if len(kept) > MOST_POINTS:  # all at one time
            kept = kept[::2]
        self.values = [self.values[index] for index in kept]
        self._times = [self._times[index] for index in kept]

    def thirds(self) -> tuple[list[float], list[float], list[float]]:
        """The values of the first, the middle and the last third."""
        size = max(1, len(self.values) // 3)
        return self.values[:size], self.values[size:-size], self.values[-size:]


class Lately:
    """How far cumulative counts have risen in the last minutes, whatever they had risen by before."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, Mapping[str, float]]] = deque()

    def add(self, t_s: float, counts: Mapping[str, float]) -> None:
        """Add the counts of a time; one that has fallen, as that of a learner that went back, rises on."""
        if len(self._rows) > 2 and self._rows[-1][0] - self._rows[-2][0] < APART_S:
            self._rows.pop()
        self._rows.append((t_s, counts))
        while len(self._rows) > 2 and self._rows[1][0] <= t_s - LATELY_S:
            self._rows.popleft()

    def gain(self, name: str) -> float:
        """What a count has risen by."""
        counts = [row.get(name, 0.0) for _, row in self._rows]
        return sum(max(0.0, after - before) for before, after in pairwise(counts))

    def rate(self, name: str) -> float:
        """The same per second; 0 before there is any time."""
        span_s = self._rows[-1][0] - self._rows[0][0] if self._rows else 0.0
        return self.gain(name) / span_s if span_s > 0 else 0.0


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error; that of one value is not known, and 0."""
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


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


def machine_rows(rows: Any) -> dict[str, dict[str, Any]]:
    """The numbers of each machine that has joined, and its ``host``."""
    return {
        node: {"host": str(row.get("host", node)), **numbers(row)}
        for node, row in (rows.items() if isinstance(rows, Mapping) else ())
        if isinstance(row, Mapping)
    }
