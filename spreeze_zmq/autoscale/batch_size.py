"""Decides how large a batch learners should train on, where the number of samplers is as it should be.

What was measured before the run says what each batch trains with a core to itself; whether so much can be fed
shows in the run alone. Learners that starve can afford smaller batches: more updates of the same samples.
Learners that are the bottleneck gain by a larger one where the curve still rises. Pure arithmetic with the
caller's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.autoscale.knee import KNEE_SHARE
from spreeze_zmq.autoscale.rebalance import GAIN, NOTICEABLE, SPARE, Change
from spreeze_zmq.autoscale.restraint import Restraint, Wish
from spreeze_zmq.autoscale.spell import Window
from spreeze_zmq.autoscale.throughput import Model, core_share, fitted

#: The share of time in which learners starve, or samplers are blocked, that is reason enough.
LARGE = 0.25
#: A batch becomes no smaller than this, and no larger than so many times the one that was chosen.
SMALLEST, TIMES_CHOSEN = 64, 2
#: Every turn from smaller to larger or back must be wanted by so many times more windows than the last one.
TURNING = 4


@dataclass
class BatchSize:
    """What is remembered between windows.

    Attributes:
        curve: batch size -> transitions/s that a critic-learner alone trains on, as measured before the run.
        present: the batch now; one of the curve.
        most: the largest that it may become.
        others: what restrains the other changes: this one waits for their rests too.
        restraint: on changes of the batch, which are counted apart.
        figures: what the last decision was made from, for the journal.
    """

    curve: Mapping[int, float]
    present: int
    most: int
    others: Restraint
    restraint: Restraint = field(default_factory=Restraint)
    figures: dict[str, Any] = field(default_factory=dict)
    _wish: Wish = field(default_factory=Wish)
    _grew: bool | None = None
    _turns: int = 0

    @classmethod
    def measured(cls, choice: Mapping[str, Any], others: Restraint) -> BatchSize:
        """From ``batch_size`` of a plan's ``measured``: {chosen, curve: [[size, rate], ...]}."""
        curve, chosen = {int(size): float(rate) for size, rate in choice["curve"]}, int(choice["chosen"])
        return cls(curve, chosen, min(TIMES_CHOSEN * chosen, max(curve)), others)

    def decide(self, window: Window, now_s: float) -> Change | None:
        """What to change now, if anything; to be asked only while nothing else is to be moved."""
        model = fitted(window) if window.steady else None
        if model is None:
            return None
        wanted = self._wanted(window, model)
        wished, windows = self._wish.hear(self.present, wanted)
        self.figures = self._figures(window, model, wanted)
        if wanted == self.present or not self._may(wished > self.present, windows, now_s):
            return None
        change = Change(
            "critic_learner", self.present, wished, self._reason(window, model, wished), "batch_size"
        )
        self._turns += self._grew is not None and self._grew != (wished > self.present)
        self._grew = wished > self.present
        self.restraint.note(now_s)
        self._wish.forget()
        self.present = wished
        return change

    def forget(self) -> None:
        """The run is not what it was: what was wished counts no more."""
        self._wish.forget()

    def _may(self, grows: bool, windows: int, now_s: float) -> bool:
        """Whether enough windows in a row have asked, and all changes are far enough apart."""
        turns = self._turns + (self._grew is not None and self._grew != grows)
        return self.others.rested(now_s) and self.restraint.allows(windows // TURNING**turns, now_s)

    def _wanted(self, window: Window, model: Model) -> int:
        """The size to have."""
        if window.short_of_policies > NOTICEABLE:
            return self.present
        starved, blocked = window.critic.starved, window.blocked
        if starved >= LARGE and blocked < NOTICEABLE:
            fewer = [size for size in sorted(self.curve) if SMALLEST <= size < self.present]
            return next((size for size in fewer if self._suffices(size, window, model)), self.present)
        if blocked >= LARGE and starved < NOTICEABLE:
            return self._grown(SPARE * window.replay_ratio * model.capacity(len(window.samplers)), model)
        return self.present

    def _grown(self, enough: float, model: Model) -> int:
        """The size after as many doublings as train ``GAIN`` more each, or ``enough`` transitions/s."""
        size = self.present
        while (larger := 2 * size) <= self.most and larger in self.curve:
            if self._could_train(size, model) >= enough or self.curve[larger] < (1 + GAIN) * self.curve[size]:
                break
            size = larger
        return size

    def _cost(self, size: int) -> float:
        """What a trained transition costs in batches of ``size``, in those of the present ones."""
        return self.curve[self.present] / self.curve[size]

    def _suffices(self, size: int, window: Window, model: Model) -> bool:
        """Whether learners could train ``SPARE`` times what is fed, and the run would train nearly as much as
        with any batch, the cores counted that samplers lose to learners.
        """
        count, dearer = len(window.samplers), model.dearer(self._cost(size))
        could = dearer.critic.rate(core_share(window))
        best = max(model.dearer(self._cost(other)).throughput(count) for other in self.curve)
        return (
            could >= SPARE * window.critic.trained_per_s
            and window.actor.busy * self._cost(size) <= 1
            and dearer.throughput(count) >= KNEE_SHARE * best
        )

    def _could_train(self, size: int, model: Model) -> float:
        """Transitions/s of a critic-learner that never starves."""
        return model.dearer(self._cost(size)).critic.rate(1.0)

    def _figures(self, window: Window, model: Model, wanted: int) -> dict[str, Any]:
        could = {str(size): self._could_train(size, model) for size in sorted(self.curve)}
        return {"batch_size": self.present, "batch_wanted": wanted, "batch_could_train_per_s": could}

    def _reason(self, window: Window, model: Model, wanted: int) -> str:
        """One line: what changes, and the figures that speak for it."""
        head = f"batch size {self.present:,} -> {wanted:,}:"
        ratio = f"replay ratio {window.measured_ratio:.1f} of {window.replay_ratio:g}"
        could = f"{wanted:,} could train {self._could_train(wanted, model):,.0f} transitions a second"
        trained = f"{window.critic.trained_per_s:,.0f}"
        if wanted < self.present:
            why = f"critic_learner starved {window.critic.starved:.0%} of the time"
            return f"{head} {why}, {could} where {trained} are fed; {ratio}".replace("%", " %")
        why = f"samplers blocked {window.blocked:.0%} of the time"
        return f"{head} {why}, {could} where {trained} are trained; {ratio}".replace("%", " %")
