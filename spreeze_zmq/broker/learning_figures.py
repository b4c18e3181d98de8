"""The newest figures of what the learners do, from their reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.broker.figures import Rates
from spreeze_zmq.broker.receipts import superseded
from spreeze_zmq.broker.rows import inner, kept
from spreeze_zmq.plan.roles import CRITIC_LEARNER

#: The counters that status and summary show, with their rates; the first ones go on in a resumed run.
RESTORED = ("env_steps", "critic_updates", "actor_updates", "sampled_transitions", "trained_transitions")
COUNTS = (*RESTORED, "critic_flops", "actor_flops")
#: Upper bounds of what is kept, so that no peer fills the memory or makes the status too large to send.
LIVES_KEPT, GAUGES_KEPT, DEVICES_KEPT = 1000, 256, 16
#: Stands for the lives that were left out; none has this name. How their lags become one.
PAST = ""
FOLDS: Mapping[str, Callable[[Iterable[float]], float]] = {"max": max, "stale": sum}


@dataclass
class ReplayRatio:
    """``measured`` is ``trained_transitions`` / ``sampled_transitions`` of the same status, of what
    came since the target was set or the run went on from another, None while none has; on data alone there is
    no ratio.
    """

    target: float | None
    measured: float | None


@dataclass
class PolicyLag:
    """Lag of received rollouts in policy versions; ``stale`` transitions exceeded ``bound`` and were
    dropped. The quantiles are the worst of the learners' newest incarnations, of all that these received and
    of the last rollouts; the rest is over all incarnations.
    """

    p50: float
    p99: float
    recent_p50: float
    recent_p99: float
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
        counts: by name in ``COUNTS``; a restarted learner continues from its checkpoint, but what the run has
            sampled stays sampled, and what has been computed stays computed.
        computed_by: by name of a count of what is computed: the incarnation that says it, and what those
            before had computed beyond the checkpoint that it continues from.
        first_counts: the first reported values of ``counts``; a resumed run starts above 0.
        policy_lags: by incarnation of a learner, as ``NAME/INCARNATION``.
        ratio_since: the counts from which on the replay ratio is measured.
        before: the counts that a resumed run starts from, which no report of a learner that has not been
            restored yet undercuts.
        gauges: losses and other momentary figures. What the actor-learner reports by a name of the
            critic-learner's is ``policy_NAME``.
        left_out: a gauge beyond those kept, until :meth:`tell_left_out`; None afterwards.
        publication: by role: seconds between two publications, their share of the updates' time, bytes.
        devices: by process: FLOP/s that its core or GPU reaches, share of time that updates take on a GPU,
            memory held, memory free.
        rates: present increase of the counts per second.
    """

    counts: dict[str, Any] = kept(lambda: dict.fromkeys(COUNTS, 0))
    first_counts: dict[str, Any] = kept(dict)
    computed_by: dict[str, Any] = kept(dict)
    policy_lags: dict[str, Any] = kept(dict)
    ratio_since: dict[str, float] = kept(dict)
    before: Mapping[str, float] = inner(dict)
    gauges: dict[str, float] = inner(dict)
    left_out: str | None = inner(str)
    publication: dict[str, dict[str, float]] = inner(dict)
    devices: dict[str, dict[str, float]] = kept(dict)
    rates: Rates = inner(lambda: Rates())
    _critics: set[str] = inner(set)

    @property
    def has_trained(self) -> bool:
        """Whether updates have been made, in a run that goes on from another one since then."""
        return bool(self.counts["critic_updates"] > self.first_counts.get("critic_updates", 0))

    def take_device(self, sender: str, fields: Mapping[str, Any]) -> None:
        """Record what any process reports about its device."""
        if fields.get("device") and (sender in self.devices or len(self.devices) < DEVICES_KEPT):
            self.devices[sender] = fields["device"]

    def take(self, instance: str, fields: Mapping[str, Any], now_s: float) -> None:
        """Record the report of a learner's incarnation."""
        if "policy_lag" in fields:
            self.policy_lags[instance] = fields["policy_lag"]
            self._join_oldest_lags()
        if "publication" in fields:
            self.publication[fields["role"]] = fields["publication"]
        self._take_gauges(fields["role"], fields["gauges"])
        for name in COUNTS:
            if name in fields["counters"] and self._is_of_this_run(name, fields["counters"]):
                least = self.counts[name] if name == "env_steps" else self.before.get(name, 0)
                count = fields["counters"][name]
                count = count if name in RESTORED else self._computed(name, instance, count)
                self.counts[name] = max(count, least)
                self.first_counts.setdefault(name, self.counts[name])
                self.rates.add(name, self.counts[name], now_s)

    def _take_gauges(self, role: str, gauges: Mapping[str, float]) -> None:
        for name, value in gauges.items():
            named = f"policy_{name}" if role != CRITIC_LEARNER and name in self._critics else name
            if named in self.gauges or len(self.gauges) < GAUGES_KEPT:
                self.gauges[named] = value
            elif self.left_out == "":
                self.left_out = named
        if role == CRITIC_LEARNER:
            self._critics |= gauges.keys() & self.gauges.keys()

    def tell_left_out(self) -> str:
        """That there are more gauges than are kept, in words, once; empty for nothing to tell."""
        if not self.left_out:
            return ""
        named, self.left_out = self.left_out, None
        return f"the learners report more than {GAUGES_KEPT} metrics: {named!r:.60} and others are not drawn"

    def _join_oldest_lags(self) -> None:
        """Keep of the oldest lives, of very many, only what is told of all."""
        while len(self.policy_lags) > LIVES_KEPT and (old := next(superseded(self.policy_lags), "")):
            lags = self.policy_lags.pop(old), self.policy_lags.get(PAST, {})
            most, stale = (fold(lag.get(name, 0) for lag in lags) for name, fold in FOLDS.items())
            self.policy_lags[PAST] = {"max": most, "stale": stale}

    def _computed(self, name: str, instance: str, count: float) -> float:
        """What all lives of a learner have computed; the newest counts from its checkpoint on, and from 0
        before it is restored.
        """
        life, beyond = self.computed_by.get(name, (instance, 0.0))
        if life != instance:
            if not count:
                return float(self.counts[name])
            beyond = max(0.0, self.counts[name] - count)
        self.computed_by[name] = [instance, beyond]
        return float(count + beyond)

    def _is_of_this_run(self, name: str, counters: Mapping[str, float]) -> bool:
        """Whether it goes on from the resumed run's checkpoint: products do once their updates do."""
        updates = name.replace("_flops", "_updates")
        return updates == name or counters.get(updates, 0) >= self.before.get(updates, 0)

    def resume(self, counts: Mapping[str, float]) -> None:
        """Start from the counts at a checkpoint of another run."""
        self.before = {name: counts[name] for name in RESTORED if name in counts}
        self.counts |= self.before
        self.measure_ratio_anew()

    def mean_rates(self, wall_s: float) -> dict[str, float]:
        """``NAME_per_s`` over ``wall_s``, without the counts that a resumed run started from."""
        gains = {name: count - self.first_counts.get(name, count) for name, count in self.counts.items()}
        return {f"{name}_per_s": gain / wall_s if wall_s > 0 else 0.0 for name, gain in gains.items()}

    def sampled_transitions(self) -> int:
        """Transitions that the ratio counts; all env steps if no learner reports them."""
        return int(self.counts[self._sampled])

    @property
    def _sampled(self) -> str:
        name = "sampled_transitions"
        return name if self.counts[name] or name in self.first_counts else "env_steps"

    def measure_ratio_anew(self) -> None:
        """Measure the replay ratio from now on: another one is held, or a resumed run begins."""
        self.ratio_since = {name: float(self.counts[name]) for name in RESTORED}

    def replay_ratio(self, target: float | None) -> ReplayRatio:
        """Transitions trained on for each one that it counts, beside the target."""
        if target is None:
            return ReplayRatio(None, None)
        trained, sampled = (
            self.counts[name] - self.ratio_since.get(name, 0.0)
            for name in ("trained_transitions", self._sampled)
        )
        return ReplayRatio(target, max(0.0, trained) / sampled if sampled > 0 else None)

    def efficiency(
        self, flops_per_s: float, places: Mapping[str, str], num_cores: float
    ) -> Efficiency | None:
        """The share of the devices' arithmetic that the updates use; None before learners report both.

        Args:
            flops_per_s: of all learners together.
            places: the device of each learner's process.
            num_cores: physical cores that the run may use, or parts of them. A learner on the CPU reports the
                limit of one.
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
        """Core-seconds that the products of this run's updates on the CPU take at the rate that was measured
        for them; arguments as for :meth:`efficiency`.
        """
        total = 0.0
        for name, place in places.items():
            limit = self.devices.get(name, {}).get("limit_flops_per_s", 0.0)
            if place == "cpu" and limit:
                flops = f"{name.split('_')[0]}_flops"
                total += (self.counts[flops] - self.first_counts.get(flops, self.counts[flops])) / limit
        return total

    def policy_lag(self, newest: Collection[str], bound: int | None) -> PolicyLag:
        """The row of all learners; ``newest`` are their newest incarnations, ``bound`` is the topology's."""
        lags = list(self.policy_lags.values())
        recent = [lag for instance, lag in self.policy_lags.items() if instance in newest]
        quantiles = {
            name: max((lag.get(name, lag.get(name.removeprefix("recent_"), 0)) for lag in recent), default=0)
            for name in ("p50", "p99", "recent_p50", "recent_p99")
        }
        return PolicyLag(
            **quantiles,
            max=max((lag.get("max", 0) for lag in lags), default=0),
            stale=sum(lag.get("stale", 0) for lag in lags),
            bound=bound,
        )
