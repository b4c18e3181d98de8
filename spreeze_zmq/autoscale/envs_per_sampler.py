"""Decides how many environments each sampler should step together, where no other number of samplers helps.

Every step of a batch costs something whatever its size: the policy's forward pass, the calls. Where learners
starve although the count of samplers is as it should be, twice the environments are tried; what a number was
measured to train decides whether it stays. Where rollouts arrive too old, smaller ones are fresher. Pure
arithmetic with the caller's clock; rests and the number of changes are shared with the counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.autoscale.rebalance import GAIN, NOTICEABLE, Change, lacks_samplers
from spreeze_zmq.autoscale.restraint import Memory, Restraint, Wish
from spreeze_zmq.autoscale.spell import Window


@dataclass
class EnvsPerSampler:
    """What is remembered between windows.

    Attributes:
        minimum: fewest environments in a sampler that the topology allows.
        maximum: most of them.
        present: how many there are.
        restraint: on changes; the same object as that of the counts.
        memory: of what each number has trained.
        settled: the last steady window asked for no change.
    """

    minimum: int
    maximum: int
    present: int
    restraint: Restraint
    memory: Memory = field(default_factory=Memory)
    settled: bool = False
    _wish: Wish = field(default_factory=Wish)

    @property
    def movable(self) -> bool:
        """Whether the topology leaves anything to decide."""
        return self.minimum < self.maximum

    def decide(self, window: Window, now_s: float) -> Change | None:
        """What to change now, if anything; to be asked only while the count of samplers is right."""
        self.settled = not self.movable
        if not (self.movable and window.steady):
            return None
        rate = window.critic.trained_per_s
        if self.memory.enter(self.present, rate, self.restraint.changes(now_s), now_s):
            self.restraint.begin_anew(now_s)
        wanted = min(max(self._wanted(window), self.minimum), self.maximum)
        wished, windows = self._wish.hear(self.present, wanted)
        self.settled = wanted == self.present
        if wanted == self.present or not self.restraint.allows(windows, now_s):
            return None
        change = Change("sampler", self.present, wished, self._reason(window, wished), "envs")
        self.restraint.note(now_s)
        self._wish.forget()
        self.present = wished
        return change

    def forget(self) -> None:
        """There are more or fewer samplers: what was measured of these says nothing."""
        self.memory = Memory()
        self._wish.forget()

    def figures(self) -> dict[str, Any]:
        """For the journal."""
        tried = {str(n): rate for n, rate in sorted(self.memory.rates.items())}
        return {"envs": self.present, "tried_trained_per_s_by_envs": tried}

    def _wanted(self, window: Window) -> int:
        """The number to have."""
        tried, now = self.memory.rates, self.memory.rates[self.present]
        if window.useful < 1 - NOTICEABLE:
            return max(1, self.present // 2)
        hungry = lacks_samplers(window) and window.blocked < NOTICEABLE
        best = self.memory.best()
        if tried[best] > (1 + GAIN) * now and (best < self.present or hungry):
            return best
        larger = min(2 * self.present, self.maximum)
        has_paid = all(now > (1 + GAIN) * tried[fewer] for fewer in tried if fewer < self.present)
        if hungry and has_paid and tried.get(larger, float("inf")) > (1 + GAIN) * now:
            return larger
        return self.present

    def _reason(self, window: Window, wanted: int) -> str:
        """One line: what changes, and the figures that speak for it."""
        head, tried = f"environments in each sampler {self.present} -> {wanted}:", self.memory.rates
        ratio = f"replay ratio {window.measured_ratio:.1f} of {window.replay_ratio:g}"
        if window.useful < 1 - NOTICEABLE:
            return f"{head} {1 - window.useful:.0%} of what arrives is too old; {ratio}".replace("%", " %")
        if tried.get(wanted, 0.0) > (1 + GAIN) * tried[self.present]:
            return (
                f"{head} {wanted} trained {tried[wanted]:,.0f} transitions a second, {self.present} train "
                f"{tried[self.present]:,.0f}; {ratio}"
            )
        return (
            f"{head} critic_learner starved {window.critic.starved:.0%} of the time and another sampler "
            f"gains nothing, {window.produced_per_s:,.0f} samples a second; {ratio}"
        ).replace("%", " %")
