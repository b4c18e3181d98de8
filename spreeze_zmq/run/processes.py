"""The broker's record of each process, and the status rows made from it; times in seconds since the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import LiveProcess, Workers


@dataclass
class ProcessRecord:
    """The newest figures of one incarnation of a process.

    Attributes:
        role: its role.
        incarnation: distinguishes it from earlier processes of its name.
        pid: its process id.
        heard_s: time of its last report.
        ready_s: when it was set up; None before.
        gone: how it ended; empty while it lives.
        figures: its last report.
        shares: of the time between its last two reports: ``busy``, ``blocked``, ``starved``, and ``cpu``.
    """

    role: str
    incarnation: int
    pid: int
    heard_s: float
    ready_s: float | None = None
    gone: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    _clock: dict[str, float] = field(default_factory=dict)

    def take(self, figures: Mapping[str, Any], now_s: float) -> None:
        """Enter a report."""
        clock = {**figures["clock_s"], "cpu": figures["cpu_s"]}
        spent = {name: clock[name] - self._clock.get(name, 0.0) for name in clock}
        span = sum(spent[name] for name in figures["clock_s"])
        if span > 0:
            self.shares = {name: max(0.0, value) / span for name, value in spent.items()}
        self.figures, self._clock, self.heard_s = figures, clock, now_s


def worker_rows(processes: Iterable[ProcessRecord]) -> dict[str, Workers]:
    """By role: number of living processes, means of their shares, sums of their CPU and memory."""
    rows: dict[str, Workers] = {}
    for process in processes:
        if process.gone:
            continue
        row = rows.setdefault(
            process.role,
            {"count": 0, "busy": 0.0, "blocked": 0.0, "starved": 0.0, "cpu_percent": 0.0, "rss_bytes": 0.0},
        )
        row["count"] += 1
        row["busy"] += process.shares.get("busy", 0.0)
        row["blocked"] += process.shares.get("blocked", 0.0)
        row["starved"] += process.shares.get("starved", 0.0)
        row["cpu_percent"] += 100 * process.shares.get("cpu", 0.0)
        row["rss_bytes"] += process.figures.get("rss_bytes", 0)
    for row in rows.values():
        row["busy"] /= row["count"]
        row["blocked"] /= row["count"]
        row["starved"] /= row["count"]
    return rows


def process_rows(processes: Mapping[str, ProcessRecord], now_s: float) -> dict[str, LiveProcess]:
    """The living processes by name."""
    return {
        name: {
            "role": process.role,
            "pid": process.pid,
            "ready": process.ready_s is not None,
            "silent_s": now_s - process.heard_s,
            "waiting_for": process.figures.get("waiting_for", ""),
            "busy": process.shares.get("busy", 0.0),
            "blocked": process.shares.get("blocked", 0.0),
            "starved": process.shares.get("starved", 0.0),
            "cpu_percent": 100 * process.shares.get("cpu", 0.0),
            "rss_bytes": process.figures.get("rss_bytes", 0),
        }
        for name, process in processes.items()
        if not process.gone
    }
