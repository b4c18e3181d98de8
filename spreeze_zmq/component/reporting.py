"""What a process knows of itself, as its reports say it: its figures, its time, what it waits for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from spreeze_zmq.base.usage import Family, age_s
from spreeze_zmq.component.process import Waits
from spreeze_zmq.wire import channels

#: Time between two reports.
REPORT_INTERVAL_S = 0.5
#: Bytes of all examples of refused messages in a report, which has one header for all that it says.
MOST_EXAMPLES = 8192
#: A ``hello`` is on its way for less time than this.
UNHEARD_S = 2.0


class Reporting:
    """The part of a component that makes its reports; all figures are cumulative.

    Attributes:
        role: its role in the topology.
        name: ``ROLE-INDEX``.
        figures: field of a report -> function that computes it when the report is sent; ``counters``,
            ``gauges``, ``pushed``, ``taken``, ``policy_lag``, ``publication``, ``device`` (see PROTOCOL.md).
        has_more: whether ``taken`` did not hold all streams that have changed, so that more must follow.
        waits: the clocks of its time, and its current wait.
        lacks: what it lacks in words, though it does not wait; empty for nothing.
        reports_dropped: reports for which there was no room.
    """

    def __init__(self, role: str, name: str) -> None:
        self.role, self.name = role, name
        self.figures: dict[str, Callable[[], Mapping[str, Any]]] = {}
        self.has_more: Callable[[], bool] = lambda: False
        self.lacks: Callable[[], str] = lambda: ""
        self.waits = Waits(name)
        self.reports_dropped = 0
        self._channels: dict[str, channels.Channel] = {}
        self._began_s = time.monotonic() - age_s()
        self._family = Family(psutil.Process())
        self._is_thread = threading.current_thread() is not threading.main_thread()
        self._is_ready, self._preparations, self._hello_s = False, 0, 0.0

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def cpu_s(self) -> float:
        """CPU seconds used by this process and its child processes; by this thread alone where several
        components are threads of one process.
        """
        return time.thread_time() if self._is_thread else self._family.cpu_s()

    def _reports(self) -> list[dict[str, Any]]:
        """One report, and as many others with the same figures as it takes to list all of ``taken``."""
        reports = [self.own_report()]
        while self.has_more():
            reports.append({**reports[0], "taken": self.figures["taken"]()})
        return reports

    def own_report(self) -> dict[str, Any]:
        """The fields of a report."""
        figures = {name: dict(value()) for name, value in self.figures.items()}
        counters = {"reports_dropped": self.reports_dropped, **figures.pop("counters", {})}
        now_s = self.waits.turn()  # most reports come in the middle of a wait
        return {
            "role": self.role,
            "name": self.name,
            "pid": os.getpid(),
            "time_s": time.time(),
            "uptime_s": now_s - self._began_s,
            "cpu_s": self.cpu_s,
            "rss_bytes": self._family.rss_bytes(),
            "clock_s": dict(self.waits.clock_s),
            "counters": counters,
            "gauges": {},
            "refused": self._refused(),
            "waiting_for": self._owed(),
            **figures,
        }

    def _refused(self) -> list[dict[str, Any]]:
        """What each channel has refused; the first ones with an example."""
        rows = [row for channel in self._channels.values() for row in channel.refusals.rows()]
        room = MOST_EXAMPLES
        for row in rows:
            room -= len(row["first"].encode())
            row["first"] = row["first"] if room >= 0 else ""
        return rows

    def _is_unheard(self, status: Mapping[str, Any]) -> bool:
        """Whether a broker knows this process, and not that it is ready, some time after its ``hello``: that
        went with the broker before this one, of which this process had not heard.
        """
        row = status.get("processes", {}).get(self.name, {})
        is_known = row.get("pid") == os.getpid() and row.get("ready") is False
        return self._is_ready and is_known and time.monotonic() - self._hello_s > UNHEARD_S

    def count_step(self) -> None:
        """Count a step of the start, if this process is not ready yet; that extends the start's deadline."""
        self._preparations += not self._is_ready

    def _owed(self) -> str:
        """What this process waits for, in words; empty if for nothing."""
        if self._preparations and not self._is_ready:
            return f"its own start, of which {self._preparations} steps are done"
        return self.waits.owed or self.lacks()
