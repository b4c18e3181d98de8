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

from spreeze_zmq.autoscale.restraint import Memory, Restraint, Wish
from spreeze_zmq.autoscale.spell import Window
from spreeze_zmq.autoscale.throughput import Cost, Model, fastest, fitted

#: Growing must promise this much more throughput.
GAIN = 0.08
#: A count that trains this much less than the best is as good as it.
TOLERANCE = 0.03
#: What a count is grown to can produce this much more than is wanted, at least.
ROOM = 1.05
#: What a count is shrunk to can still produce this many times what is wanted.
SPARE = 1.25
#: A share of blocked time below this is no reason to shrink, and neither is a count so little smaller.
NOTICEABLE, WORTHWHILE = 0.1, 0.85


@dataclass(frozen=True)
class Change:
    """What should be done, and why, in figures.

    Attributes:
        role: whose number moves.
        before: what it is now.
        count: what it should be.
        reason: one line.
        option: the component's option that it is; empty for the number of processes.
    """

    role: str
    before: int
    count: int
    reason: str
    option: str = ""


@dataclass
class Rebalancer:
    """What is remembered between windows.

    Attributes:
        minimum: fewest samplers that the topology allows.
        maximum: most of them.
        restraint: on changes.
        memory: of what counts have trained.
        figures: what the last decision was made from, for the journal.
        settled: the last steady window asked for no change, and none was made since.
    """

    minimum: int
    maximum: int
    restraint: Restraint = field(default_factory=Restraint)
    memory: Memory = field(default_factory=Memory)
    figures: dict[str, Any] = field(default_factory=dict)
    settled: bool = False
    _healthy: Cost | None = None
    _limping: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    _wish: Wish = field(default_factory=Wish)

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
        count = len(window.samplers)
        wanted = min(max(self._wanted(window, model), self.minimum), self.maximum)
        wished, windows = self._wish.hear(count, wanted)
        self.settled = wanted == count
        self.figures = self._figures(window, model, wanted)
        if wanted == count or not self.restraint.allows(windows, now_s):
            return None
        self.restraint.note(now_s)
        self._wish.forget()
        self.settled = False
        return Change("sampler", count, wished, reason(window, model, wished, self.memory.rates))

    def forget(self) -> None:
        """Samplers are not what they were: nothing that was measured of them counts."""
        self.memory, self._healthy, self.settled = Memory(), None, False
        self._wish.forget()

    def _remember(self, window: Window, model: Model, now_s: float) -> None:
        """Enter what this count trains, and what a sampler in good health costs."""
        count, changes = len(window.samplers), self.restraint.changes(now_s)
        if self._other_limp(window.limping):
            self.memory = Memory()
            self.restraint.begin_anew(now_s)
        if self.memory.enter(count, window.critic.trained_per_s, changes, now_s):
            self.restraint.begin_anew(now_s)
        present = fastest(model.samplers)
        if self._healthy is None or count > 1 or present.rate(1.0) > self._healthy.rate(1.0):
            self._healthy = present

    def _other_limp(self, limping: frozenset[int]) -> bool:
        """Whether other samplers than before have become slow, or well again, for two windows: then no count
        is what it was, though all together may train nearly as much.
        """
        believed, last = self._limping
        other = limping == last != believed
        self._limping = (limping if other else believed, limping)
        return other

    def _wanted(self, window: Window, model: Model) -> int:
        """The count to have."""
        count, tried = len(window.samplers), self.memory.rates
        now, was_better = tried[count], self.memory.best()
        # Noise makes some count look better; more samplers can only have been where there is hunger now.
        plausible = was_better < count or lacks_samplers(window)
        if plausible and tried[was_better] > (1 + GAIN) * now:
            return was_better
        best, here = model.throughput(self.maximum), model.throughput(count)
        grown = model.fewest(count, self.maximum, (1 - TOLERANCE) * best, ROOM)
        # Whatever a fit says: who does not starve, or starves for want of policies, has no use for more.
        if lacks_samplers(window) and grown > count and model.throughput(grown) > (1 + GAIN) * here:
            return count if tried.get(grown, grown * now) <= (1 + GAIN) * now else grown
        for fewer in range(self._fewest(window, model), count):
            if tried.get(fewer, now) >= (1 - 2 * TOLERANCE) * now:
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
        # Whatever pace a fit expects of the learners: what they take now must come from somebody.
        while sure < count and model.capacity(sure) < window.produced_per_s:
            sure += 1
        reached = model.throughput(count)
        if (
            window.short_of_policies > NOTICEABLE
        ):  # then the pace is that of the policies, and no fit knows it
            reached = min(reached, window.critic.trained_per_s)
        fewest = model.fewest(min(max(self.minimum, sure), count), count, (1 - TOLERANCE) * reached, SPARE)
        return fewest if fewest <= WORTHWHILE * count else count

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
            "tried_trained_per_s": {str(n): trained for n, trained in sorted(self.memory.rates.items())},
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
