"""Numbers that move along a run, and numbers that differ by network, as a topology writes both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: The keys of a schedule, and those that it must have.
KEYS, NEEDED = ("from", "to", "over", "shape"), ("from", "to")
#: What a schedule may run over: the counts of a run, by their names in ``[run.stop]``.
COUNTS = ("env_steps", "trained_transitions", "minutes")
#: Shape -> the way done, from 0 to 1, at a progress from 0 to 1.
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda progress: progress,
    "cosine": lambda progress: 0.5 - 0.5 * math.cos(math.pi * progress),
}
EXAMPLE = '{ from = 3e-4, to = 3e-5, over = "run" }'


@dataclass(frozen=True)
class Scheduled:
    """A number that goes from one value to another.

    Attributes:
        first: value at the start.
        last: value at the end, and from there on.
        over: count of the run -> its value at the end; the end is where the first of them is reached. The
            count ``run`` is the share of the whole run, 1 at its end.
        shape: a key of ``SHAPES``.
    """

    first: float
    last: float
    over: Mapping[str, float]
    shape: str = "linear"

    @classmethod
    def of(cls, value: Any) -> Scheduled | None:
        """The schedule that an option's value is; None for any other value."""
        if not is_schedule(value):
            return None
        over = value.get("over", "run")
        end = {"run": 1.0} if over == "run" else over
        return cls(value["from"], value["to"], end, value.get("shape", "linear"))

    def progress(self, reached: Mapping[str, float]) -> float:
        """The way from start to end, from 0 to 1: the largest share reached of a count of ``over``."""
        return share_of(self.over, reached)

    def value(self, progress: float) -> float:
        """The number at a progress from 0 to 1."""
        done = SHAPES[self.shape](progress)
        return (1.0 - done) * self.first + done * self.last


def share_of(ends: Mapping[str, float], reached: Mapping[str, float]) -> float:
    """The largest share that is reached of some counts, at most 1; 0 of none."""
    return min(1.0, max((reached.get(name, 0.0) / end for name, end in ends.items()), default=0.0))


def is_schedule(value: Any) -> bool:
    """Whether an option's value is the table of a schedule, not one of networks."""
    return isinstance(value, Mapping) and any(key in value for key in KEYS)


def mapped(value: Any, function: Callable[[float], float]) -> Any:
    """An option's value with ``function`` applied to its number, or to each number of its tables."""
    if is_schedule(value):
        return {**value, **{end: function(value[end]) for end in NEEDED}}
    if isinstance(value, Mapping):
        return {network: mapped(inner, function) for network, inner in value.items()}
    return function(value)


def schedules_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """The tables of schedules in an option's value."""
    if is_schedule(value):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from schedules_in(inner)


def goes_over_run(values: Mapping[str, Any]) -> bool:
    """Whether a schedule among the values of these options ends as the run does, by its limits."""
    return any(each.get("over", "run") == "run" for each in schedules_in(values))


def in_words(value: Any, form: str = "g") -> str:
    """An option's value for a line: ``"0.0003 to 3e-05"``, ``"critic 0.001, policy 0.0003"``."""
    if is_schedule(value):
        shape, over = value.get("shape", "linear"), value.get("over", "run")
        by = "" if shape == "linear" else f" by {shape}"
        end = (
            ""
            if over == "run"
            else f" over {' or '.join(f'{name} {count:,.15g}' for name, count in over.items())}"
        )
        return f"{value['from']:{form}} to {value['to']:{form}}{end}{by}"
    if isinstance(value, Mapping):
        return ", ".join(f"{network} {in_words(inner, form)}" for network, inner in value.items())
    return f"{value:{form}}"
