"""Rates of counters over the last seconds; the caller passes the times."""

from __future__ import annotations

from collections import deque

#: A value that comes sooner than this after the last one replaces it.
LEAST_GAP_S = 0.02


class Rates:
    """Rates of cumulative counters over a sliding window.

    Args:
        window_s: seconds that a rate covers.
    """

    def __init__(self, window_s: float = 5.0) -> None:
        self.window_s = window_s
        self._points: dict[str, deque[tuple[float, float]]] = {}

    def add(self, name: str, value: float, now_s: float) -> None:
        """Record a counter's value. A smaller value than before, as after a restart, clears its history."""
        points = self._points.setdefault(name, deque())
        if points and value < points[-1][1]:
            points.clear()
        if points and now_s < points[-1][0] + LEAST_GAP_S:
            now_s, _ = points.pop()
        points.append((now_s, value))
        # Keep one point from before the window, so that the rate covers all of it.
        while len(points) > 2 and points[1][0] <= now_s - self.window_s:
            points.popleft()

    def rate(self, name: str, now_s: float) -> float:
        """Counts per second; 0 if the counter is unknown, new, or has had no value for a whole window."""
        points = self._points.get(name)
        if not points or len(points) < 2 or now_s - points[-1][0] > self.window_s:
            return 0.0
        (began_s, before), (ended_s, after) = points[0], points[-1]
        return (after - before) / (ended_s - began_s)
