"""The newest figures of the processes, from their reports, and rates of what they count.

All times are in seconds since the run began.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from spreeze_zmq.broker.rows import inner
from spreeze_zmq.wire import LARGEST

#: A counter's value that comes sooner than this after the last one replaces it.
LEAST_GAP_S = 0.02
#: Longest rest between two bursts of a counter that it is expected to come back from.
MOST_REST_S = 60.0
#: Reports that come later than this are said to be late.
LATE_S = 1.0
#: Share of the time by which the clocks of two machines may drift apart.
DRIFT = 2e-4
#: Shares of a process's time; the rest it is idle.
SHARES = ("busy", "blocked", "starved")


@dataclass
class ProcessRecord:
    """One incarnation of a process, with the figures of its newest report.

    Attributes:
        ready: whether its ``hello`` has come.
        silent_s: seconds since its last report.
        waiting_for: what it waits for; empty for nothing.
        busy: share of the time between its last two reports, 0 to 1; so are ``blocked`` and ``starved``.
        cpu_percent: its CPU use in that time; 100 is one core.
        incarnation: distinguishes it from earlier processes of its name.
        heard_s: time of its last report.
        gone: how it ended; empty while it lives.
        gauges: of its last report.
        late_s: how much longer than the fastest of its reports the last one was on its way.
        pushed: transitions that it has pushed.
        produced_per_s: their increase in the time between its last two reports.
        clock: its cumulative seconds by kind of time, and of CPU.
    """

    role: str
    pid: int
    ready: bool = False
    silent_s: float = 0.0
    waiting_for: str = ""
    busy: float = 0.0
    blocked: float = 0.0
    starved: float = 0.0
    cpu_percent: float = 0.0
    rss_bytes: int = 0
    incarnation: int = inner(int)
    heard_s: float = inner(float)
    late_s: float = inner(float)
    gone: str = inner(str)
    gauges: Mapping[str, Any] = inner(dict)
    pushed: int = inner(int)
    produced_per_s: float = inner(float)
    clock: dict[str, float] = inner(dict)
    _uptime_s: float = inner(float)
    _began_s: float = inner(lambda: math.inf)

    def take(self, figures: Mapping[str, Any], now_s: float) -> None:
        """Record a report."""
        clock = {**figures["clock_s"], "cpu": figures["cpu_s"]}
        spent = {name: clock[name] - self.clock.get(name, 0.0) for name in clock}
        span = sum(spent[name] for name in figures["clock_s"])
        if span > 0:
            share = {name: max(0.0, value) / span for name, value in spent.items()}
            self.busy, self.blocked, self.starved = (share.get(name, 0.0) for name in SHARES)
            self.cpu_percent = 100 * share["cpu"]
            pushed = max(figures.get("pushed", {}).values(), default=0)
            self.produced_per_s, self.pushed = max(0, pushed - self.pushed) / span, pushed
        self.waiting_for, self.rss_bytes = figures.get("waiting_for", ""), figures.get("rss_bytes", 0)
        self.gauges, self.clock, self.heard_s = figures.get("gauges", {}), clock, now_s
        self._measure_delay(figures.get("uptime_s", 0.0), now_s)

    def _measure_delay(self, uptime_s: float, now_s: float) -> None:
        """Compare when a report came with when it was made, by the process's own clock, if that goes on. One
        of another machine may go slower: over days by more than what is late.
        """
        if self._uptime_s < uptime_s <= LARGEST:
            drifted_s = DRIFT * (uptime_s - self._uptime_s)
            self._began_s = min(self._began_s + drifted_s, now_s - uptime_s)
            self.late_s = now_s - uptime_s - self._began_s
        self._uptime_s = uptime_s


def lateness(processes: Iterable[ProcessRecord]) -> dict[str, float]:
    """``reports_late_s``: how late the reports of most processes come; nothing while that is no delay."""
    late_s = median([one.late_s for one in processes if one.heard_s] or [0.0])
    return {"reports_late_s": late_s} if late_s >= LATE_S else {}


@dataclass
class Workers:
    """All living processes of one role: means of their shares, sums of CPU use and memory."""

    count: int
    busy: float
    blocked: float
    starved: float
    cpu_percent: float
    rss_bytes: float


def worker_rows(processes: Iterable[ProcessRecord]) -> dict[str, Workers]:
    """The rows of processes by role."""
    groups: dict[str, list[ProcessRecord]] = {}
    for one in processes:
        groups.setdefault(one.role, []).append(one)
    return {
        role: Workers(
            count=len(rows),
            **{name: sum(getattr(row, name) for row in rows) / len(rows) for name in SHARES},
            cpu_percent=sum(row.cpu_percent for row in rows),
            rss_bytes=float(sum(row.rss_bytes for row in rows)),
        )
        for role, rows in groups.items()
    }


class Rates:
    """Rates of cumulative counters over a sliding window.

    Args:
        window_s: seconds that a rate covers; of a counter that rises less often, as once in a round of many
            rollouts, it covers its last two rises.
    """

    def __init__(self, window_s: float = 5.0) -> None:
        self.window_s = window_s
        self._points: dict[str, deque[tuple[float, float]]] = {}
        self._unrisen: set[str] = set()  # those whose only point is no rise
        self._rest: dict[str, tuple[float, float]] = {}  # the rest that cleared a history, and when

    def forget(self, name: str) -> None:
        """Drop a counter that is gone for good."""
        self._points.pop(name, None)
        self._rest.pop(name, None)
        self._unrisen.discard(name)

    def add(self, name: str, value: float, now_s: float) -> None:
        """Record a counter's value. A smaller value than before, as after a restart, clears its history; so
        does a rise after a time without any.
        """
        points = self._points.setdefault(name, deque())
        if points and value < points[-1][1]:
            points.clear()
        if not points:
            self._unrisen.add(name)
        elif value == points[-1][1]:
            if name in self._unrisen:
                points[0] = max(points[0][0], now_s - self.window_s), value
            return
        else:
            self._unrisen.discard(name)
            if now_s < points[-1][0] + LEAST_GAP_S:
                now_s, _ = points.pop()
            elif len(points) > 1 and self._rests(name, now_s):
                self._rest[name] = min(now_s - points[-1][0], MOST_REST_S), now_s
                points.clear()
        points.append((now_s, value))
        # Keep one point from before the window, so that the rate covers all of it.
        while len(points) > 3 and points[1][0] <= now_s - self.window_s:
            points.popleft()

    def _rests(self, name: str, now_s: float) -> bool:
        """Whether it has not risen for a whole window, nor twice the time between any two rises; of one that
        comes in bursts, twice the rest before the burst.
        """
        points = self._points[name]
        longest_s = max(after[0] - before[0] for before, after in pairwise(points))
        rest_s, until_s = self._rest.get(name, (0.0, 0.0))
        if now_s <= until_s + 2 * rest_s:
            longest_s = max(longest_s, rest_s)
        return now_s - points[-1][0] > max(self.window_s, 2 * longest_s)

    def rate(self, name: str, now_s: float) -> float:
        """Counts per second; 0 if the counter is unknown, new, or has stopped to rise."""
        points = self._points.get(name)
        if not points or len(points) < 2 or self._rests(name, now_s):
            return 0.0
        (began_s, before), (ended_s, after) = points[0], points[-1]
        return (after - before) / (ended_s - began_s)
