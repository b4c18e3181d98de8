"""The newest figures from the processes' reports, and the status rows made from them.

All times are in seconds since the run began.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spreeze_zmq.metrics import busy_cpu_s

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Efficiency, LiveProcess, PolicyLag, ReplayRatio, Workers

#: The counters that status and summary show, with their rates; the first ones go on in a resumed run.
RESTORED = ("env_steps", "critic_updates", "actor_updates", "sampled_transitions", "trained_transitions")
COUNTS = (*RESTORED, "critic_flops", "actor_flops")
#: Upper bounds of what is kept, so that no peer fills the memory or makes the status too large to send.
LIVES_KEPT, GAUGES_KEPT, DEVICES_KEPT = 1000, 64, 16
#: Time over which the CPUs of other programs are counted: reports come twice a second.
CPUS_INTERVAL_S = 5.0
#: A counter's value that comes sooner than this after the last one replaces it.
LEAST_GAP_S = 0.02


@dataclass
class ProcessRecord:
    """The newest figures of one incarnation of a process.

    Attributes:
        role: its role.
        incarnation: distinguishes it from earlier processes of its name.
        pid: its process id.
        heard_s: time of its last report.
        ready_s: time of its ``hello``; None before.
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
        """Record a report."""
        clock = {**figures["clock_s"], "cpu": figures["cpu_s"]}
        spent = {name: clock[name] - self._clock.get(name, 0.0) for name in clock}
        span = sum(spent[name] for name in figures["clock_s"])
        if span > 0:
            self.shares = {name: max(0.0, value) / span for name, value in spent.items()}
        self.figures, self._clock, self.heard_s = figures, clock, now_s


def process_rows(processes: Mapping[str, ProcessRecord], now_s: float) -> dict[str, LiveProcess]:
    """The status rows of the living processes, by name."""
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


def worker_rows(processes: Mapping[str, LiveProcess]) -> dict[str, Workers]:
    """By role: the number of living processes, the means of their shares, the sums of CPU and memory."""
    groups: dict[str, list[LiveProcess]] = {}
    for row in processes.values():
        groups.setdefault(row["role"], []).append(row)
    return {
        role: {
            "count": len(rows),
            "busy": sum(row["busy"] for row in rows) / len(rows),
            "blocked": sum(row["blocked"] for row in rows) / len(rows),
            "starved": sum(row["starved"] for row in rows) / len(rows),
            "cpu_percent": sum(row["cpu_percent"] for row in rows),
            "rss_bytes": float(sum(row["rss_bytes"] for row in rows)),
        }
        for role, rows in groups.items()
    }


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


class OtherPrograms:
    """The CPUs that programs outside of the run hold, of those that its launcher may use.

    Attributes:
        own_cpu_s: CPU seconds of all processes of the run so far, as they report them.
    """

    def __init__(self) -> None:
        self.own_cpu_s = 0.0
        self._num_cpus = float(len(os.sched_getaffinity(os.getppid())))
        self._before: tuple[float, float, float] | None = None
        self._row: dict[str, float] = {}

    def row(self, now_s: float) -> dict[str, float]:
        """``cpus`` and, on average over the last ``CPUS_INTERVAL_S``, ``cpus_idle`` and ``cpus_of_others``;
        empty at first.
        """
        if self._before is None or now_s - self._before[0] >= CPUS_INTERVAL_S:
            now = now_s, busy_cpu_s(os.getppid()), self.own_cpu_s
            if self._before is not None:
                span_s, busy_s, own_s = (
                    after - before for after, before in zip(now, self._before, strict=True)
                )
                others, idle = (busy_s - own_s) / span_s, self._num_cpus - busy_s / span_s
                self._row = {"cpus": self._num_cpus}
                self._row |= {"cpus_of_others": max(0.0, others), "cpus_idle": max(0.0, idle)}
            self._before = now
        return self._row


class LearningFigures:
    """The newest figures of all learners.

    Attributes:
        counts: by name in ``COUNTS``; a restarted learner continues from its checkpoint.
        first_counts: the first reported values of ``counts``; a resumed run starts above 0.
        before: the counts that a resumed run starts from, which no report of a learner that has not been
            restored yet undercuts.
        rates: present increase of the counts per second.
        gauges: losses and other momentary figures.
        publication: by role.
        devices: by process.
        policy_lags: by incarnation of a learner, as ``NAME/INCARNATION``.
    """

    def __init__(self) -> None:
        self.counts: dict[str, float] = dict.fromkeys(COUNTS, 0)
        self.first_counts: dict[str, float] = {}
        self.before: Mapping[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.publication: dict[str, dict[str, float]] = {}
        self.devices: dict[str, dict[str, float]] = {}
        self.policy_lags: dict[str, Mapping[str, float]] = {}
        self.rates = Rates()

    def take_device(self, sender: str, fields: Mapping[str, Any]) -> None:
        """Record what any process reports about its device."""
        if fields.get("device") and (sender in self.devices or len(self.devices) < DEVICES_KEPT):
            self.devices[sender] = fields["device"]

    def take(self, instance: str, fields: Mapping[str, Any], now_s: float) -> None:
        """Record the report of a learner's incarnation."""
        if "policy_lag" in fields:
            self.policy_lags[instance] = fields["policy_lag"]
            while len(self.policy_lags) > LIVES_KEPT:
                del self.policy_lags[next(iter(self.policy_lags))]
        if "publication" in fields:
            self.publication[fields["role"]] = fields["publication"]
        for name, value in fields["gauges"].items():
            if name in self.gauges or len(self.gauges) < GAUGES_KEPT:
                self.gauges[name] = value
        for name in COUNTS:
            if name in fields["counters"]:
                self.counts[name] = max(fields["counters"][name], self.before.get(name, 0))
                self.first_counts.setdefault(name, self.counts[name])
                self.rates.add(name, self.counts[name], now_s)

    def resume(self, counts: Mapping[str, float]) -> None:
        """Start from the counts at a checkpoint of another run."""
        self.before = {name: counts[name] for name in RESTORED if name in counts}
        self.counts |= self.before

    def mean_rates(self, wall_s: float) -> dict[str, float]:
        """``NAME_per_s`` over the whole run, without the counts that a resumed run started from."""
        gains = {name: count - self.first_counts.get(name, count) for name, count in self.counts.items()}
        return {f"{name}_per_s": gain / wall_s if wall_s > 0 else 0.0 for name, gain in gains.items()}

    def sampled_transitions(self) -> int:
        """Transitions that updates could train on; all env steps if a learner does not report them."""
        return int(self.counts["sampled_transitions"] or self.counts["env_steps"])

    def replay_ratio(self, target: float) -> ReplayRatio:
        """Transitions trained on for each one sampled, over the whole run, beside the target."""
        sampled = self.sampled_transitions()
        return {
            "target": target,
            "measured": self.counts["trained_transitions"] / sampled if sampled else 0.0,
        }

    def efficiency(self, flops_per_s: float, places: Mapping[str, str], num_cores: int) -> Efficiency | None:
        """The share of the devices' arithmetic that the updates use; None before learners report both.

        Args:
            flops_per_s: of all learners together.
            places: the device of each learner's process.
            num_cores: physical cores that the run may use. A learner on the CPU reports the limit of one.
        """
        limits: dict[str, float] = {}
        for name, place in places.items():
            one = self.devices.get(name, {}).get("limit_flops_per_s", 0.0)
            limits[place] = max(limits.get(place, 0.0), one * (num_cores if place == "cpu" else 1))
        limit = sum(limits.values())
        if not limit or not flops_per_s:
            return None
        return {"flops_per_s": flops_per_s, "limit_flops_per_s": limit, "share": flops_per_s / limit}

    def policy_lag(self, instances: Collection[str], bound: int | None) -> PolicyLag:
        """Maximum lag and stale transitions over all incarnations of the learners. The quantiles are the
        worst of ``instances``, the newest incarnations; ``bound`` is the topology's.
        """
        lags = self.policy_lags.values()
        recent = [lag for instance, lag in self.policy_lags.items() if instance in instances]
        return {
            "p50": max((lag.get("p50", 0) for lag in recent), default=0),
            "p99": max((lag.get("p99", 0) for lag in recent), default=0),
            "max": max((lag.get("max", 0) for lag in lags), default=0),
            "stale": sum(lag.get("stale", 0) for lag in lags),
            "bound": bound,
        }
