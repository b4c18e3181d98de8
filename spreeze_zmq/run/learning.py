"""What the learners report of their work: counters, losses, publication, policy lag, devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from spreeze_zmq.metrics import Rates

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Efficiency, PolicyLag

#: The counters that status and summary show, with their rates.
COUNTS = (
    *("env_steps", "critic_updates", "actor_updates", "trained_transitions"),
    *("critic_flops", "actor_flops"),
)
#: What is kept of the rest, so that no peer can fill it, and a status can be sent.
LIVES_KEPT, GAUGES_KEPT, DEVICES_KEPT = 1000, 64, 16


class LearningFigures:
    """The newest figures of all learners.

    Attributes:
        counts: by name of ``COUNTS``; a restarted learner counts on from its checkpoint.
        gauges: losses and other momentary figures.
        publication: by role.
        devices: by process.
        policy_lags: by incarnation of a learner, as ``NAME/INCARNATION``.
    """

    def __init__(self) -> None:
        self.counts: dict[str, float] = dict.fromkeys(COUNTS, 0)
        self._at_start: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.publication: dict[str, dict[str, float]] = {}
        self.devices: dict[str, dict[str, float]] = {}
        self.policy_lags: dict[str, Mapping[str, float]] = {}
        self._rates = Rates()

    def take_device(self, sender: str, fields: Mapping[str, Any]) -> None:
        """Enter what any process says of its device."""
        if fields.get("device") and (sender in self.devices or len(self.devices) < DEVICES_KEPT):
            self.devices[sender] = fields["device"]

    def take(self, instance: str, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter the report of a learner's incarnation."""
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
                self.counts[name] = fields["counters"][name]
                self._at_start.setdefault(name, self.counts[name])
                self._rates.add(name, self.counts[name], now_s)

    def rate(self, name: str, now_s: float) -> float:
        """The counter's increase in a second, of late."""
        return self._rates.rate(name, now_s)

    def mean_rates(self, wall_s: float) -> dict[str, float]:
        """``NAME_per_s`` of the whole run, which may have been resumed from counts above 0."""
        gains = {name: count - self._at_start.get(name, 0) for name, count in self.counts.items()}
        return {f"{name}_per_s": gain / wall_s if wall_s > 0 else 0.0 for name, gain in gains.items()}

    def efficiency(self, flops_per_s: float, places: Mapping[str, str], num_cores: int) -> Efficiency | None:
        """How much of what its devices could multiply the run does; None before learners have said so.

        Args:
            flops_per_s: of all learners together.
            places: the device of each learner's process.
            num_cores: physical ones that the run may use: learners on CPUs tell what one of them could do.
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
        """Maximum and stale transitions over all incarnations of the learners; quantiles of these
        ``instances``, the worst of several.
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
