"""Rates measured in turn, and the figures made of them, for all sections of ``spreeze bench``."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Longest turn of one way. Short turns spread the load of other programs evenly over all ways.
TURN_S = 0.3


class Rate(NamedTuple):
    """The rate of one turn, per second of wall time and of CPU time."""

    per_s: float
    per_cpu_s: float


#: Runs for about the given number of seconds and returns its rate.
Way = Callable[[float], Rate]


@dataclass(frozen=True)
class Job:
    """The task of a section.

    Attributes:
        env_id: the environment.
        algorithm: the algorithm whose policy acts and whose updates are measured.
        seconds: approximate duration.
        device: of learner and replay: ``"cpu"`` or ``"cuda:0"``.
        shipped: also measure each shipped algorithm, by one line.
    """

    env_id: str
    algorithm: str
    seconds: float
    device: str = "cpu"
    shipped: bool = False


@dataclass(frozen=True)
class Figure:
    """A limit of this machine, and the rate that the system reaches.

    Attributes:
        name: the subject.
        limit: the median over the turns.
        reached: the median over the turns.
        unit: of both.
        ratio: the median of the ratios of neighbouring turns, on which load that comes and goes has less
            effect than on the ratio of the medians.
        note: a remark for the table.
        details: further numbers, for programs.
    """

    name: str
    limit: float
    reached: float
    unit: str
    ratio: float
    note: str = ""
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """The figures of one part of the system; ``about`` names the limit."""

    name: str
    about: str
    figures: Sequence[Figure]


def paired(name: str, unit: str, limits: Sequence[float], reached: Sequence[float], note: str = "") -> Figure:
    """The figure of two series measured in turn."""
    ratios = [ours / limit for limit, ours in zip(limits, reached, strict=True)]
    medians = statistics.median(limits), statistics.median(reached)
    return Figure(name, *medians, unit, statistics.median(ratios), note)


def in_turn(
    ways: Mapping[str, Way], seconds: float, least: int = 3, turn_s: float = TURN_S
) -> dict[str, list[Rate]]:
    """The rates of each way, one for each round; every other round takes the ways in reverse order.

    Args:
        ways: the ways to compare.
        seconds: for all of them together, after one more round that only warms up.
        least: smallest number of rounds, even if that takes longer.
        turn_s: longest turn of one way.
    """
    turn_s = min(turn_s, seconds / (len(ways) * least))
    rates: dict[str, list[Rate]] = {name: [] for name in ways}
    number, ends_s = 0, math.inf
    while number <= least or time.perf_counter() < ends_s:
        for name in list(ways)[:: 1 if number % 2 else -1]:
            rates[name].append(ways[name](turn_s))
        if number == 0:
            ends_s = time.perf_counter() + seconds
        number += 1
    return {name: measured[1:] for name, measured in rates.items()}


def by_clock(rates: Mapping[str, Sequence[Rate]]) -> dict[str, list[float]]:
    """The rates of each way per second of wall time."""
    return {name: [rate.per_s for rate in measured] for name, measured in rates.items()}


def repeated(step: Callable[[], object], amount: float, turn_s: float) -> Rate:
    """The rate of a step that does ``amount`` at once, repeated in this process for at least ``turn_s``."""
    count = 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while (passed_s := time.perf_counter() - began_s) < turn_s or not count:
        step()
        count += 1
    cpu_s = max(time.process_time() - began_cpu_s, 1e-9)
    return Rate(count * amount / passed_s, count * amount / cpu_s)


def typical(step: Callable[[], object], amount: float, turn_s: float) -> Rate:
    """As ``repeated``, but from the median duration of a step, on which interrupted ones have no effect."""
    times_s: list[tuple[float, float]] = []
    ends_s = time.perf_counter() + turn_s
    while not times_s or time.perf_counter() < ends_s:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        step()
        times_s.append((time.perf_counter() - began_s, time.process_time() - began_cpu_s))
    typical_s, typical_cpu_s = (statistics.median(times) for times in zip(*times_s, strict=True))
    return Rate(amount / typical_s, amount / max(typical_cpu_s, 1e-9))


def number(value: float) -> str:
    """A number for a table: at least three digits, with separators of thousands."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
