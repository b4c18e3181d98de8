"""Decides how many samplers a run should have: measured windows in, a change and its reason in figures out.

Pure arithmetic with the caller's clock. The model of ``throughput`` proposes; what a count has lately been
measured to train is believed before it. Three things keep it from swinging: growing must gain ``GAIN``,
shrinking must leave ``SPARE``, and a change rests until the new process has paid back its start, twice as
long after each further change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.balance.throughput import Cost, Model, Window, fastest, fitted

#: Growing must promise this much more throughput.
GAIN = 0.08
#: A count that trains this much less than the best is as good as it.
TOLERANCE = 0.03
#: What a count is grown to can produce this much more than is wanted, at least.
ROOM = 1.05
#: What a count is shrunk to can still produce this many times what is wanted.
SPARE = 1.25
#: The throughput of one and the same count changes by this share: the world has changed, not the count.
NEW_WORLD = 0.3
#: The first change must be wanted by so many windows in a row, each further one by as many more.
PERSISTENCE = 2
#: A share of blocked time below this is no reason to shrink, and neither is a count so little smaller.
NOTICEABLE, WORTHWHILE = 0.1, 0.85
#: Changes while the world stays the same, within so many seconds.
MOST_CHANGES, CHANGES_S = 3, 120.0
#: What a count trained is believed so long, and twice as long with each change of late: speeds wander.
BELIEVED_S = 30.0
#: Rest after a change, besides the start of a process as many times as ``PAYBACK`` says, doubled with
#: every change of the last ``RECENT_S``.
REST_S, PAYBACK, RECENT_S = 3.0, 2.0, 40.0


@dataclass(frozen=True)
class Change:
    """What should be done, and why, in figures."""

    role: str
    before: int
    count: int
    reason: str


@dataclass
class Rebalancer:
    """What is remembered between windows.

    Attributes:
        minimum: fewest samplers that the topology allows.
        maximum: most of them.
        start_s: seconds that the start of a sampler takes.
        tried: trained transitions/s by count, as far as it is believed still.
        figures: what the last decision was made from, for the journal.
        settled: the last steady window asked for no change, and none was made since.
    """

    minimum: int
    maximum: int
    start_s: float = 1.0
    tried: dict[int, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    settled: bool = False
    _healthy: Cost | None = None
    _wished: tuple[int, int] = (0, 0)
    _changed_s: list[float] = field(default_factory=list)
    _world_s: float = float("-inf")
    _seen_s: dict[int, float] = field(default_factory=dict)

    @property
    def movable(self) -> bool:
        """Whether the topology leaves anything to decide."""
        return self.minimum < self.maximum

    def decide(self, window: Window, now_s: float) -> Change | None:
        """What to change now, if anything; the caller carries it out."""
        model = fitted(window, self._healthy) if window.steady else None
        if model is None:
            self.figures = {**self.figures, "steady": False}
            return None
        self._remember(window, model, now_s)
        changes, count = self._changes(now_s), len(window.samplers)
        wanted = min(max(self._wanted(window, model), self.minimum), self.maximum)
        wished, windows = self._wish(count, wanted)
        self.settled = wanted == count
        self.figures = self._figures(window, model, wanted)
        if wanted == count or windows < PERSISTENCE * (1 + changes) or now_s < self._rests_until_s(now_s):
            return None
        if changes >= MOST_CHANGES:
            return None
        self._changed_s.append(now_s)
        self._wished, self.settled = (0, 0), False
        return Change("sampler", count, wished, reason(window, model, wished, self.tried))

    def _changes(self, now_s: float) -> int:
        """How many were made of late in the present world."""
        return sum(max(self._world_s, now_s - CHANGES_S) <= changed_s for changed_s in self._changed_s)

    def _wish(self, count: int, wanted: int) -> tuple[int, int]:
        """The change that all of the last windows agree on, the least of them, and how many they are."""
        before, windows = self._wished
        agreed = windows > 0 and (before - count) * (wanted - count) > 0
        least = min if wanted > count else max
        self._wished = (least(before, wanted), windows + 1) if agreed else (wanted, 1)
        return self._wished

    def _remember(self, window: Window, model: Model, now_s: float) -> None:
        """Enter what this count trains; throw away what is old, or was known of another world."""
        count, trained = len(window.samplers), window.critic.trained_per_s
        believed_s = BELIEVED_S * 2.0 ** self._changes(now_s)
        self.tried = {n: was for n, was in self.tried.items() if now_s - self._seen_s[n] <= believed_s}
        known = self.tried.get(count)
        if known is not None and abs(trained - known) > NEW_WORLD * known:
            self.tried, self._world_s = {}, now_s
            known = None
        self.tried[count] = trained if known is None else 0.7 * known + 0.3 * trained
        self._seen_s[count] = now_s
        present = fastest(model.samplers)
        if self._healthy is None or count > 1 or present.rate(1.0) > self._healthy.rate(1.0):
            self._healthy = present

    def _wanted(self, window: Window, model: Model) -> int:
        """The count to have."""
        count, now = len(window.samplers), self.tried[len(window.samplers)]
        was_better = max(self.tried, key=lambda tried: self.tried[tried])
        # Noise makes some count look better; more samplers can only have been where there is hunger now.
        plausible = was_better < count or lacks_samplers(window)
        if plausible and self.tried[was_better] > (1 + GAIN) * now:
            return was_better
        best, here = model.throughput(self.maximum), model.throughput(count)
        grown = model.fewest(count, self.maximum, (1 - TOLERANCE) * best, ROOM)
        # Whatever a fit says: who does not starve, or starves for want of policies, has no use for more.
        if lacks_samplers(window) and grown > count and model.throughput(grown) > (1 + GAIN) * here:
            return count if self.tried.get(grown, grown * now) <= (1 + GAIN) * now else grown
        for fewer in range(self._fewest(window, model), count):
            if self.tried.get(fewer, now) >= (1 - 2 * TOLERANCE) * now:
                return fewer
        return count

    def _fewest(self, window: Window, model: Model) -> int:
        """What the count may be shrunk to without loss; the count itself where too little would be saved.

        The time that samplers wait for their learners is what is sure; that they hinder each other less when
        they are fewer is the model's word, and taken for half at most.
        """
        count = len(window.samplers)
        waiting = window.blocked + window.short_of_policies
        if waiting < NOTICEABLE:
            return count
        sure = math.ceil(count * (1 - waiting) / 2)
        reached = model.throughput(count)
        if (
            window.short_of_policies > NOTICEABLE
        ):  # then the pace is that of the policies, and no fit knows it
            reached = min(reached, window.critic.trained_per_s)
        fewest = model.fewest(min(max(self.minimum, sure), count), count, (1 - TOLERANCE) * reached, SPARE)
        return fewest if fewest <= WORTHWHILE * count else count

    def _rests_until_s(self, now_s: float) -> float:
        recent = sum(now_s - changed_s < RECENT_S for changed_s in self._changed_s)
        if not recent:
            return 0.0
        return self._changed_s[-1] + (REST_S + PAYBACK * self.start_s) * 2.0 ** (recent - 1)

    def _figures(self, window: Window, model: Model, wanted: int) -> dict[str, Any]:
        count = len(window.samplers)
        return {
            "steady": True,
            "samplers": count,
            "wanted": wanted,
            "produced_per_s": window.produced_per_s,
            "received_per_s": window.critic.received_per_s,
            "trained_per_s": window.critic.trained_per_s,
            "replay_ratio": {"target": window.replay_ratio, "measured": window.measured_ratio},
            "blocked": window.blocked,
            "short_of_policies": window.short_of_policies,
            "starved": window.critic.starved,
            "useful": window.useful,
            "capacity_per_s": model.capacity(count),
            "demand_per_s": demand(window, model),
            "busy_cores": window.busy_cores,
            "other_cores": model.other_cores,
            "cores": window.cores,
            "expected_trained_per_s": {str(n): model.throughput(n) for n in _shown(self, count, wanted)},
            "tried_trained_per_s": {str(n): trained for n, trained in sorted(self.tried.items())},
        }


def _shown(limits: Rebalancer, count: int, wanted: int) -> list[int]:
    """Counts whose expected throughput is worth a line."""
    near = {count - 1, count, count + 1, wanted, limits.minimum, limits.maximum}
    return sorted(n for n in near if limits.minimum <= n <= limits.maximum)


def demand(window: Window, model: Model) -> float:
    """Samples/s that a critic-learner which never starves would take."""
    return model.critic.rate(1.0) / window.replay_ratio


def lacks_samplers(window: Window) -> bool:
    """Whether the critic-learner starves and more samplers would feed it: not where those that there are wait
    for newer policies themselves, as where the lag is bounded and the actor-learner sets the pace.
    """
    return window.critic.starved > GAIN and window.short_of_policies <= NOTICEABLE


def reason(window: Window, model: Model, wanted: int, tried: Mapping[int, float]) -> str:
    """One line: what changes, and the figures that speak for it."""
    count = len(window.samplers)
    head = f"samplers {count} -> {wanted}:"
    made = f"{window.produced_per_s:,.0f}"
    ratio = f"replay ratio {window.measured_ratio:.1f} of {window.replay_ratio:g}"
    if tried.get(wanted, 0.0) > (1 + GAIN) * tried[count]:
        return (
            f"{head} {wanted} trained {tried[wanted]:,.0f} transitions a second, {count} train "
            f"{tried[count]:,.0f}; {ratio}"
        )
    if wanted > count:
        return (
            f"{head} critic_learner starved {window.critic.starved:.0%} of the time, "
            f"{made} samples a second where it could take {demand(window, model):,.0f}; {ratio}"
        ).replace("%", " %")
    waited = f"blocked {window.blocked:.0%} of the time"
    if window.short_of_policies > window.blocked:
        waited = f"waiting for newer policies {window.short_of_policies:.0%} of the time"
    return (
        f"{head} {waited}, {wanted} can produce "
        f"{model.capacity(wanted):,.0f} samples a second where {made} are taken; {ratio}"
    ).replace("%", " %")
