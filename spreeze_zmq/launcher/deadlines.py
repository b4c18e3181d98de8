"""Detects processes that do not get ready, or do not report, in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER


class Deadlines:
    """The deadlines of a run's processes.

    Args:
        plan: ``start_timeout_s`` of each component and ``heartbeat_timeout_s`` of the broker are read.
        clock: monotonic seconds.
    """

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._components, self._clock = plan.components, clock
        self._heartbeat_s: float = plan.components[BROKER].options["heartbeat_timeout_s"]
        self._started_s: dict[str, float] = {}
        self._waited_for: dict[str, str] = {}
        self._status_s = math.inf

    def begin(self, name: str) -> None:
        """Begin the start timeout of a process that starts, or is about to be restarted."""
        self._started_s[name] = self._clock()

    def hear_status(self) -> None:
        """Note that the broker has published a status, which is its own heartbeat."""
        self._status_s = self._clock()

    def postpone(self, seconds: float) -> None:
        """Move all deadlines, after the launcher itself was stopped for a time."""
        self._status_s += seconds
        self._started_s = {name: began_s + seconds for name, began_s in self._started_s.items()}

    def missed(self, name: str, process: Mapping[str, Any]) -> str:
        """The deadline that a living process has missed, in words; empty for none.

        Args:
            name: ``ROLE-INDEX``.
            process: its row of the newest status; empty where there is none. While it starts, a change of
                what it waits for counts as progress and begins its start timeout again.
        """
        waiting_for = process.get("waiting_for", "")
        if process.get("ready"):
            self._started_s.pop(name, None)
        elif name in self._started_s and waiting_for != self._waited_for.get(name, ""):
            self.begin(name)
        self._waited_for[name] = waiting_for
        if name in self._started_s:
            waited_s = self._clock() - self._started_s[name]
            late = waited_s > self._components[name.rpartition("-")[0]].start_timeout_s
            return f"not ready after {waited_s:.0f} s" if late else ""
        silent_s = process.get("silent_s") if name != f"{BROKER}-0" else self._clock() - self._status_s
        late = isinstance(silent_s, int | float) and silent_s > self._heartbeat_s
        return f"has not reported for {silent_s:.0f} s, longer than heartbeat_timeout_s" if late else ""
