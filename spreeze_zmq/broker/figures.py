"""The newest figures from the processes' reports: rows of the processes, and of what the learners do.

All times are in seconds since the run began.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from spreeze_zmq.broker.rows import inner, kept
from spreeze_zmq.wire import LARGEST

#: The counters that status and summary show, with their rates; the first ones go on in a resumed run.
RESTORED = ("env_steps", "critic_updates", "actor_updates", "sampled_transitions", "trained_transitions")
COUNTS = (*RESTORED, "critic_flops", "actor_flops")
#: Upper bounds of what is kept, so that no peer fills the memory or makes the status too large to send.
LIVES_KEPT, GAUGES_KEPT, DEVICES_KEPT = 1000, 64, 16
#: A counter's value that comes sooner than this after the last one replaces it.
LEAST_GAP_S = 0.02
#: Reports that come later than this are said to be late.
LATE_S = 1.0
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
        """Compare when a report came with when it was made, by the process's own clock, if that goes on."""
        if self._uptime_s < uptime_s <= LARGEST:
            self._began_s = min(self._began_s, now_s - uptime_s)
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


@dataclass
class ReplayRatio:
    """``measured`` is ``trained_transitions`` / ``sampled_transitions`` of the same status or summary."""

    target: float
    measured: float


@dataclass
class PolicyLag:
    """Lag of received rollouts in policy versions; ``stale`` transitions exceeded ``bound`` and were
    dropped. The quantiles are the worst of the learners' newest incarnations, the rest is over all of them.
    """

    p50: float
    p99: float
    max: float
    stale: float
    bound: int | None


@dataclass
class Efficiency:
    """Matrix products and convolutions of all updates, and the limit of the learners' GPUs, or of all cores,
    for them; ``share`` is their ratio.
    """

    flops_per_s: float
    limit_flops_per_s: float
    share: float


@dataclass
class LearningFigures:
    """The newest figures of all learners.

    Attributes:
        counts: by name in ``COUNTS``; a restarted learner continues from its checkpoint.
        first_counts: the first reported values of ``counts``; a resumed run starts above 0.
        policy_lags: by incarnation of a learner, as ``NAME/INCARNATION``.
        before: the counts that a resumed run starts from, which no report of a learner that has not been
            restored yet undercuts.
        gauges: losses and other momentary figures.
        publication: by role: seconds between two publications, their share of the updates' time, bytes.
        devices: by process: FLOP/s that its core or GPU reaches, share of time that updates take on a GPU,
            memory held, memory free.
        rates: present increase of the counts per second.
    """

    counts: dict[str, Any] = kept(lambda: dict.fromkeys(COUNTS, 0))
    first_counts: dict[str, Any] = kept(dict)
    policy_lags: dict[str, Any] = kept(dict)
    before: Mapping[str, float] = inner(dict)
    gauges: dict[str, float] = inner(dict)
    publication: dict[str, dict[str, float]] = inner(dict)
    devices: dict[str, dict[str, float]] = inner(dict)
    rates: Rates = inner(lambda: Rates())

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
            if name in fields["counters"] and self._is_of_this_run(name, fields["counters"]):
                self.counts[name] = max(fields["counters"][name], self.before.get(name, 0))
                self.first_counts.setdefault(name, self.counts[name])
                self.rates.add(name, self.counts[name], now_s)

    def _is_of_this_run(self, name: str, counters: Mapping[str, float]) -> bool:
        """Whether it goes on from the resumed run's checkpoint: products do once their updates do."""
        updates = name.replace("_flops", "_updates")
        return updates == name or counters.get(updates, 0) >= self.before.get(updates, 0)

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
        return ReplayRatio(target, self.counts["trained_transitions"] / sampled if sampled else 0.0)

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
        return Efficiency(flops_per_s, limit, flops_per_s / limit)

    def arithmetic_s(self, places: Mapping[str, str]) -> float:
        """Core-seconds that the products of all updates on the CPU take at the rate that was measured for
        them; arguments as for :meth:`efficiency`.
        """
        total = 0.0
        for name, place in places.items():
            limit = self.devices.get(name, {}).get("limit_flops_per_s", 0.0)
            if place == "cpu" and limit:
                total += self.counts[f"{name.split('_')[0]}_flops"] / limit
        return total

    def policy_lag(self, newest: Collection[str], bound: int | None) -> PolicyLag:
        """The row of all learners; ``newest`` are their newest incarnations, ``bound`` is the topology's."""
        lags = list(self.policy_lags.values())
        recent = [lag for instance, lag in self.policy_lags.items() if instance in newest]
        return PolicyLag(
            p50=max((lag.get("p50", 0) for lag in recent), default=0),
            p99=max((lag.get("p99", 0) for lag in recent), default=0),
            max=max((lag.get("max", 0) for lag in lags), default=0),
            stale=sum(lag.get("stale", 0) for lag in lags),
            bound=bound,
        )
