"""One rule for every number that a run moves while it lives: try what the rates ask for, keep it if that
pays, else go back and rest.

Pure arithmetic with the caller's clock. What counts is transitions trained on a second: a larger value must
raise them by ``GAIN``, a smaller one may cost ``LOSS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.autoscale.knobs import GAIN, Knob, Samplers
from spreeze_zmq.autoscale.windows import Window

#: What a smaller value may cost; fewer processes are worth that.
LOSS = 0.03
#: Rest after a value that did not pay, twice as long after each further one.
REST_S = 120.0
#: What has grown shrinks again after this at the earliest, twice as long after each time that it shrank.
TURN_S = 30.0
#: What is trained with one and the same setting has changed by this share: the world has, and the rest ends.
NEW_WORLD = 0.3


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
class Rest:
    """How long a knob stays where it is.

    Attributes:
        until_s: no value is tried before.
        length_s: of the next rest.
        trained_per_s: what the setting trained that it went back to.
        least_until_s: no smaller value is tried before.
        num_shrunk: smaller values that were kept; each makes the way back to them twice as long.
    """

    until_s: float = float("-inf")
    length_s: float = REST_S
    trained_per_s: float = 0.0
    least_until_s: float = float("-inf")
    num_shrunk: int = 0

    def holds(self, smaller: bool, trained_per_s: float, now_s: float) -> bool:
        """Whether no such value may be tried now."""
        if abs(trained_per_s - self.trained_per_s) > NEW_WORLD * self.trained_per_s:
            self.until_s, self.length_s = now_s, REST_S
        return now_s < self.until_s or (smaller and now_s < self.least_until_s)

    def go_back(self, trained_per_s: float, now_s: float) -> None:
        """A value did not pay."""
        self.until_s, self.trained_per_s = now_s + self.length_s, trained_per_s
        self.length_s *= 2

    def go_on(self, smaller: bool, now_s: float) -> None:
        """A value is kept."""
        self.length_s = REST_S
        self.num_shrunk += smaller
        if not smaller:
            self.least_until_s = now_s + TURN_S * 2.0**self.num_shrunk


@dataclass(frozen=True)
class Trial:
    """A value that is being measured: what it was before, and what that trained."""

    knob: Knob
    before: int
    value: int
    trained_per_s: float


@dataclass
class Rule:
    """What is remembered between windows.

    Attributes:
        knobs: those that may move, in the order in which they are asked.
        settled: the last steady window asked for no change, and none was made since.
    """

    knobs: Sequence[Knob]
    settled: bool = False
    _trial: Trial | None = None
    _rests: dict[str, Rest] = field(default_factory=dict)

    def decide(self, window: Window, now_s: float) -> Change | None:
        """What to change now, if anything; the caller carries it out and measures afresh."""
        if not window.steady:
            return None
        trained_per_s, self.settled = window.trained_per_s, False
        for knob in self.knobs:
            knob.tried[knob.present] = trained_per_s
        if (back := self._judge(window, now_s)) is not None:
            return back
        for knob in self.knobs:
            wanted, why = knob.wanted(window)
            value = knob.within(wanted)
            if value != knob.present and not self._rest(knob).holds(
                value < knob.present, trained_per_s, now_s
            ):
                self._trial = Trial(knob, knob.present, value, trained_per_s)
                return _change(knob, value, f"{why}; {_ratio(window)}")
        self.settled = True
        return None

    def begin(self, window: Window) -> Change | None:
        """What to change while nothing is trained yet, so that nothing can be measured."""
        for knob in self.knobs:
            if isinstance(knob, Samplers):
                wanted, why = knob.wanted_to_begin(window)
                if (value := knob.within(wanted)) != knob.present:
                    return _change(knob, value, why)
        return None

    def figures(self, window: Window) -> dict[str, Any]:
        """What decisions are made from, for the journal."""
        return {
            "steady": window.steady,
            "samplers": len(window.samplers),
            "produced_per_s": window.produced_per_s,
            "received_per_s": window.received_per_s,
            "trained_per_s": window.trained_per_s,
            "replay_ratio": {"target": window.replay_ratio, "measured": window.measured_ratio},
            "blocked": window.blocked,
            "short_of_policies": window.short_of_policies,
            "starved": window.starved,
            "useful": window.useful,
            "sampler_makes_per_s": max(window.makes_per_s),
            "learners_take_per_s": window.takes_per_s,
            "busy_cores": window.busy_cores,
            "trial": self._trial is not None,
            **{knob.option: knob.present for knob in self.knobs if knob.option},
            "tried_trained_per_s": {
                knob.option or "samplers": {str(value): rate for value, rate in sorted(knob.tried.items())}
                for knob in self.knobs
            },
        }

    def _judge(self, window: Window, now_s: float) -> Change | None:
        """The way back from a value that did not pay; a trial that somebody else has moved says nothing."""
        trial, self._trial = self._trial, None
        if trial is None or trial.knob.present != trial.value:
            return None
        shrunk = trial.value < trial.before
        worth = 1 - LOSS if shrunk else 1 + GAIN
        # Who lost nothing but samplers loses by starving alone; whatever else changed, the machine did.
        fed = shrunk and trial.knob.role == "sampler" and window.starved <= LOSS
        rest = self._rest(trial.knob)
        if fed or window.trained_per_s >= worth * trial.trained_per_s:
            rest.go_on(shrunk, now_s)
            return None
        rest.go_back(trial.trained_per_s, now_s)
        why = (
            f"{trial.value:,} trained {window.trained_per_s:,.0f} transitions a second, "
            f"{trial.before:,} trained {trial.trained_per_s:,.0f}"
        )
        return _change(trial.knob, trial.before, f"{why}; {_ratio(window)}")

    def _rest(self, knob: Knob) -> Rest:
        return self._rests.setdefault(knob.title, Rest())


def _change(knob: Knob, value: int, why: str) -> Change:
    reason = f"{knob.title} {knob.present:,} -> {value:,}: {why}".replace("%", " %")
    return Change(knob.role, knob.present, value, reason, knob.option)


def _ratio(window: Window) -> str:
    return f"replay ratio {window.measured_ratio:.1f} of {window.replay_ratio:g}"
