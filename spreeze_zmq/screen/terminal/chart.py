"""The returns of a run so far, and a small curve of them in Braille dots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from spreeze_zmq.base.cells import cells
from spreeze_zmq.screen.terminal.numbers import clock, decimal

#: Most points that are kept; beyond, those of a time are averaged.
MOST_POINTS = 512
#: The dots of a Braille character: 2 columns of 4 rows, from the top.
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))

#: Time in seconds and return.
Point = tuple[float, float]


class Returns:
    """Collects evaluations and training returns from the statuses of a run."""

    def __init__(self) -> None:
        self._evaluations: list[Point] = []
        self._training: list[Point] = []
        self._newest_s = -1.0
        self._has_whole = False
        self._episodes = 0

    def take(self, status: Mapping[str, Any]) -> None:
        """Record the evaluation and training return of a status, if they are new. The best score is left out:
        other episodes confirmed it, perhaps long after its policy was first evaluated.
        """
        last, episodes = status["evaluation"]["last"], status["episodes"]
        if last is not None and last["t_s"] > self._newest_s:
            self._newest_s = last["t_s"]
            self._take_look(last)
        if episodes["recent_return"] is not None and episodes["count"] != self._episodes:
            self._episodes = episodes["count"]
            _add(self._training, (status["t_s"], episodes["recent_return"]))

    def _take_look(self, look: Mapping[str, Any]) -> None:
        """Those that a limit of time has cut compare with no whole one, and leave with the first of these."""
        if is_whole := not look.get("timed_out"):
            self._evaluations = self._evaluations if self._has_whole else []
            self._has_whole = True
        if is_whole or not self._has_whole:
            _add(self._evaluations, (look["t_s"], look["mean_return"]))

    @property
    def points(self) -> list[Point]:
        """The evaluations if there are at least two, else the training returns."""
        return self._evaluations if len(self._evaluations) > 1 else self._training

    @property
    def title(self) -> str:
        """What the points show."""
        if len(self._evaluations) > 1:
            return "return of the evaluations"
        return "return in training"


def _add(points: list[Point], point: Point) -> None:
    if not (math.isfinite(point[0]) and math.isfinite(point[1])):
        return
    points.append(point)
    if len(points) > MOST_POINTS:
        *older, newest = points
        times = [t_s for t_s, _ in older]
        groups = [older[cell] for cell in cells(times, MOST_POINTS)]
        points[:] = [*((fmean(t for t, _ in group), fmean(v for _, v in group)) for group in groups), newest]


def curve(points: Sequence[Point], width: int, height: int) -> list[str]:
    """A curve through ``points`` with its highest and lowest value and its times.

    Args:
        points: at least two, by time.
        width: columns, at least 20.
        height: lines, at least 3.

    Returns:
        ``height`` lines of at most ``width`` columns; the last line shows the times.
    """
    values = [value for _, value in points]
    low, high = min(values), max(values)
    labels = [decimal(high), *[""] * (height - 3), decimal(low)] if height > 2 else []
    margin = max(map(len, labels)) + 1
    columns = width - margin - 1
    rows = _braille(points, columns, height - 1, low, high)
    lines = [f"{label:>{margin}}│{row}" for label, row in zip(labels, rows, strict=True)]
    began, ended = clock(points[0][0]), clock(points[-1][0])
    return [*lines, " " * (margin + 1) + began + ended.rjust(columns - len(began))]


def _braille(points: Sequence[Point], columns: int, rows: int, low: float, high: float) -> list[str]:
    """The curve without labels: ``rows`` lines of ``columns`` characters."""
    canvas = [[0] * columns for _ in range(rows)]
    began_s, span_s = points[0][0], points[-1][0] - points[0][0]
    last: int | None = None
    segment = 0
    for x in range(2 * columns):
        now_s = began_s + span_s * x / (2 * columns - 1)
        while segment < len(points) - 2 and points[segment + 1][0] < now_s:
            segment += 1
        value = _between(points[segment], points[segment + 1], now_s)
        share = (high - value) / (high - low) if high > low else 0.5
        y = round(share * (4 * rows - 1))
        # a steep curve has no gaps: its dots begin next to the last one
        from_y = y if last is None or abs(y - last) < 2 else last + (1 if y > last else -1)
        for dot in range(min(from_y, y), max(from_y, y) + 1):
            canvas[dot // 4][x // 2] |= DOTS[x % 2][dot % 4]
        last = y
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in canvas]


def _between(before: Point, after: Point, now_s: float) -> float:
    """The linear interpolation between two points."""
    if after[0] <= before[0]:
        return after[1]
    share = min(1.0, max(0.0, (now_s - before[0]) / (after[0] - before[0])))
    return before[1] + share * (after[1] - before[1])
