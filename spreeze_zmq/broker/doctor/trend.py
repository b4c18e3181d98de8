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
#: Seconds over which a figure must hold before a rule believes it, and least values of it in that time.
WINDOW_S, LEAST_VALUES = 8.0, 4
#: The longest such time that a rule may ask for.
LONGEST_WINDOW_S = 24.0
#: Episodes whose mean stands for a random policy: the first ones, which version 0 or an untrained network
#: has played; with fewer the mean of a task with very different returns is no guide.
FIRST_EPISODES = 32
#: 0.95 quantile of the normal distribution: a one-sided test at 5 %.
Z_95 = 1.645
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

    def has_risen(self, random: tuple[float, float] | None = None) -> bool:
        """Whether its values have risen, at 5 %, above the first ones or above a ``random`` mean, of which
        the standard error is known. They may have fallen again since.
        """
        if len(self.values) < 3:
            return False
        first, *later = (mean_of(values) for values in self.thirds())
        before = [first] if random is None else [first, random]
        return any(
            mean > low + Z_95 * math.hypot(error, other) for mean, error in later for low, other in before
        )


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


class Steadiness:
    """Figures of the last seconds, and whether each has held for long enough to be believed.

    Attributes:
        lacks: whether a figure that was asked for has held before and has too few values now; who asks sets
            it to false before.
    """

    def __init__(self) -> None:
        self.lacks = False
        self._rows: deque[tuple[float, Mapping[str, float]]] = deque()
        self._known: set[str] = set()

    def add(self, t_s: float, figures: Mapping[str, float]) -> None:
        """Add the figures of a time."""
        self._rows.append((t_s, figures))
        while self._rows[0][0] < t_s - LONGEST_WINDOW_S:
            self._rows.popleft()

    def values(self, name: str, window_s: float) -> list[float]:
        """The values of a figure in so many last seconds, or the last few where they come seldom; none
        where they are too few to be believed.
        """
        rows = [(t_s, figures[name]) for t_s, figures in self._rows if name in figures]
        since_s = self._rows[-1][0] - window_s if self._rows else 0.0
        late = [row for row in rows if row[0] >= since_s]
        rows = (late if len(late) >= LEAST_VALUES else rows[-LEAST_VALUES:]) if late else []
        if len(rows) >= LEAST_VALUES and rows[-1][0] - rows[0][0] >= 0.6 * window_s:
            self._known.add(name)
            return [value for _, value in rows]
        self.lacks = self.lacks or name in self._known
        return []


class FirstEpisodes:
    """The returns of the first episodes of a run, which come in groups."""

    def __init__(self) -> None:
        self._groups: list[tuple[int, float, float]] = []  # count, mean, std
        self._count = 0

    def add(self, count: int, mean: float, std: float) -> None:
        """Add a group, unless there are enough."""
        if self._count < FIRST_EPISODES:
            self._groups.append((max(1, count), mean, std))
            self._count += max(1, count)

    def mean(self) -> tuple[float, float] | None:
        """Their mean and its standard error; None while they are too few."""
        if self._count < FIRST_EPISODES:
            return None
        mean = sum(count * value for count, value, _ in self._groups) / self._count
        squares = sum(count * (std**2 + (value - mean) ** 2) for count, value, std in self._groups)
        return mean, math.sqrt(squares / (self._count - 1) / self._count)


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
