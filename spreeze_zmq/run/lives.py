"""What the broker has heard of each process of a run, and the rows that show it. Times are in seconds since
the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import LiveProcess, Workers


@dataclass
class Process:
    """The newest figures of one life of one process."""

    role: str
    incarnation: int
    pid: int
    heard_s: float
    ready_s: float | None = None
    gone: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    earlier_clock: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)

    def take(self, figures: Mapping[str, Any], now_s: float) -> None:
        """Enter a report; the shares are those of the time since the last one."""
        clock = {**figures["clock_s"], "cpu": figures["cpu_s"]}
        spent = {name: clock[name] - self.earlier_clock.get(name, 0.0) for name in clock}
        span = sum(spent[name] for name in figures["clock_s"])
        if span > 0:
            self.shares = {name: max(0.0, value) / span for name, value in spent.items()}
        self.figures, self.earlier_clock, self.heard_s = figures, clock, now_s


def worker_rows(processes: Iterable[Process]) -> dict[str, Workers]:
    """For each role how many live, the mean shares of their time, and what they take of cores and memory."""
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


def process_rows(processes: Mapping[str, Process], now_s: float) -> dict[str, LiveProcess]:
    """Each process that lives, by its name."""
    return {
        name: {
            "pid": process.pid,
            "ready": process.ready_s is not None,
            "silent_s": now_s - process.heard_s,
            "waiting_for": process.figures.get("waiting_for", ""),
        }
        for name, process in processes.items()
        if not process.gone
    }
