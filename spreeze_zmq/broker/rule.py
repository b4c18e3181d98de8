"""The rule for every number that a live run changes: try the value that the rates call for, keep it if it
pays, otherwise go back and rest.

The measure is transitions trained on per second: a larger value must raise it by ``GAIN``, a smaller one may
cost ``LOSS``. Pure arithmetic; the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.rates import rate
from spreeze_zmq.broker.knobs import GAIN, LOSS, Knob, Samplers
from spreeze_zmq.broker.window import LARGE, Window

#: The rest after a value that did not pay; it doubles after each further one.
REST_S = 120.0
#: The least time between growing and shrinking; it doubles after each time that the number shrank.
TURN_S = 30.0


@dataclass(frozen=True)
class Change:
    """A decision to change one number.

    Attributes:
        role: the component.
        before: the current value.
        count: the new value.
        reason: one line, in figures.
        option: the component's option to set; empty for the number of processes.
        hosts: the new number of processes on each machine that gets another one.
    """

    role: str
    before: int
    count: int
    reason: str
    option: str = ""
    hosts: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Rest:
    """When a knob may try another value again.

    Attributes:
        until_s: when any value may be tried.
        length_s: the length of the next rest.
        trained_per_s: transitions/s of the value that the knob went back to.
        least_until_s: when a smaller value may be tried.
        num_shrunk: how many smaller values were kept.
    """

    until_s: float = float("-inf")
    length_s: float = REST_S
    trained_per_s: float = 0.0
    least_until_s: float = float("-inf")
    num_shrunk: int = 0

    def holds(self, smaller: bool, trained_per_s: float, now_s: float) -> bool:
        """Whether a smaller, or larger, value must not be tried now."""
        if abs(trained_per_s - self.trained_per_s) > LARGE * self.trained_per_s:
            self.until_s, self.length_s = now_s, REST_S  # the same value, but conditions have changed
        return now_s < self.until_s or (smaller and now_s < self.least_until_s)

    def go_back(self, trained_per_s: float, now_s: float) -> None:
        """Rest, since a value did not pay."""
        self.until_s, self.trained_per_s = now_s + self.length_s, trained_per_s
        self.length_s *= 2

    def go_on(self, smaller: bool, now_s: float) -> None:
        """Note that a value was kept."""
        self.length_s = REST_S
        self.num_shrunk += smaller
        if not smaller:
            self.least_until_s = now_s + TURN_S * 2.0**self.num_shrunk


@dataclass(frozen=True)
class TriedValue:
    """A value that is being measured, the value before it, and the transitions/s which that one trained."""

    knob: Knob
    before: int
    value: int
    trained_per_s: float


@dataclass
class Rule:
    """Decides on changes, one window after another.

    Attributes:
        knobs: the numbers, in order of precedence; those that are not ``movable`` stay.
        settled: the last steady window called for no change, and none was made since.
    """

    knobs: Sequence[Knob]
    settled: bool = False
    _trial: TriedValue | None = None
    _rests: dict[str, Rest] = field(default_factory=dict)

    def decide(self, window: Window, now_s: float) -> Change | None:
        """The change to make now, if any; the caller carries it out, and calls again with windows of rates
        from after it.
        """
        if not window.steady:
            return None
        trained_per_s, self.settled = window.trained_per_s, False
        knobs = [knob for knob in self.knobs if knob.movable]
        for knob in knobs:
            knob.tried[knob.present] = trained_per_s
        if (back := self._judge(window, now_s)) is not None:
            return back
        for knob in knobs:
            wanted, why = knob.wanted(window)
            value = knob.within(wanted)
            if value != knob.present and not self._rest(knob).holds(
                value < knob.present, trained_per_s, now_s
            ):
                self._trial = TriedValue(knob, knob.present, value, trained_per_s)
                return _change(knob, value, f"{why}; {_ratio(window)}")
        self.settled = True
        return None

    def begin(self, window: Window) -> Change | None:
        """The change to make, if any, before anything is trained, when no gain can be measured."""
        for knob in self.knobs:
            if isinstance(knob, Samplers) and knob.movable:
                value, why = knob.wanted_to_begin(window)
                return _change(knob, value, why) if value != knob.present else None
        return None

    def figures(self, window: Window) -> dict[str, Any]:
        """The figures that decisions rest on, for the journal."""
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
            "busy_cores": window.here.busy_cores,
            "trial": self._trial is not None,
            **{knob.option: knob.present for knob in self.knobs if knob.option and knob.movable},
            "tried_trained_per_s": {
                knob.option or "samplers": {str(value): rate for value, rate in sorted(knob.tried.items())}
                for knob in self.knobs
                if knob.movable
            },
        }

    def _judge(self, window: Window, now_s: float) -> Change | None:
        """The change back from a value that did not pay. A trial whose value somebody else has changed is
        dropped.
        """
        trial, self._trial = self._trial, None
        if trial is None or trial.knob.present != trial.value:
            return None
        shrunk = trial.value < trial.before
        worth = 1 - LOSS if shrunk else 1 + GAIN
        # Fewer samplers can only do harm by starving the learner; any other loss is the machine's.
        fed = shrunk and trial.knob.role == "sampler" and window.starved <= LOSS
        rest = self._rest(trial.knob)
        if fed or window.trained_per_s >= worth * trial.trained_per_s:
            rest.go_on(shrunk, now_s)
            return None
        rest.go_back(trial.trained_per_s, now_s)
        why = (
            f"{trial.value:,} trained {rate(window.trained_per_s)} transitions a second, "
            f"{trial.before:,} trained {rate(trial.trained_per_s)}"
        )
        return _change(trial.knob, trial.before, f"{why}; {_ratio(window)}")

    def _rest(self, knob: Knob) -> Rest:
        return self._rests.setdefault(knob.title, Rest())


def _change(knob: Knob, value: int, why: str) -> Change:
    reason = f"{knob.title} {knob.present:,} -> {value:,}: {why}".replace("%", " %")
    return Change(knob.role, knob.present, value, reason, knob.option)


def _ratio(window: Window) -> str:
    return f"replay ratio {rate(window.measured_ratio)} of {window.replay_ratio:g}"
