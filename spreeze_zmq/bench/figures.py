"""What the sections of ``spreeze bench`` share: rates measured in turn, and the figures made of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Longest turn of one way before the others get theirs: what else the machine does falls on all alike.
TURN_S = 0.3


class Rate(NamedTuple):
    """What one turn reached, by the clock on the wall and by the CPU time that it cost."""

    per_s: float
    per_cpu_s: float


#: Runs for about as many seconds as it is given and returns its rate.
Way = Callable[[float], Rate]


@dataclass(frozen=True)
class Job:
    """What a section is to measure.

    Attributes:
        env_id: the environment.
        algorithm: whose policy acts and whose updates are measured.
        seconds: how long to measure, about.
        device: of learner and replay: ``"cpu"`` or ``"cuda:0"``.
        shipped: measure each shipped algorithm by one line as well.
    """

    env_id: str
    algorithm: str
    seconds: float
    device: str = "cpu"
    shipped: bool = False


@dataclass(frozen=True)
class Figure:
    """A limit of this machine beside what we reach.

    Attributes:
        name: what was measured.
        limit: the median over the turns.
        reached: likewise.
        unit: of both.
        ratio: the median of the ratios of neighbouring turns, which load that comes and goes moves less than
            the ratio of the medians.
        note: the same in other words, for the table.
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
    """The figures of one part of the system; ``about`` says what the limit is."""

    name: str
    about: str
    figures: Sequence[Figure]


def paired(
    name: str, unit: str, limits: Sequence[float], reached: Sequence[float], scale: float = 1.0
) -> Figure:
    """The figure of two series measured in turn; ``scale`` brings both to ``unit``."""
    ratios = [ours / limit for limit, ours in zip(limits, reached, strict=True)]
    medians = scale * statistics.median(limits), scale * statistics.median(reached)
    return Figure(name, *medians, unit, statistics.median(ratios))


def in_turn(
    ways: Mapping[str, Way], seconds: float, least: int = 3, turn_s: float = TURN_S
) -> dict[str, list[Rate]]:
    """The rates of each way, one for each round; every other round goes through the ways backwards.

    Args:
        ways: what is compared.
        seconds: for all of them together. One more round goes before them, which only warms up.
        least: number of rounds, also where that takes longer.
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
    """The rates of each way by the clock on the wall."""
    return {name: [rate.per_s for rate in measured] for name, measured in rates.items()}


def repeated(step: Callable[[], object], amount: float, turn_s: float) -> Rate:
    """The rate of a step that does ``amount`` at once, repeated for at least ``turn_s``, in this process."""
    count = 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while (passed_s := time.perf_counter() - began_s) < turn_s or not count:
        step()
        count += 1
    cpu_s = max(time.process_time() - began_cpu_s, 1e-9)
    return Rate(count * amount / passed_s, count * amount / cpu_s)


def typical(step: Callable[[], object], amount: float, turn_s: float) -> Rate:
    """As ``repeated``, by the median duration of a step: one that the machine interrupted does not count."""
    times_s: list[tuple[float, float]] = []
    ends_s = time.perf_counter() + turn_s
    while not times_s or time.perf_counter() < ends_s:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        step()
        times_s.append((time.perf_counter() - began_s, time.process_time() - began_cpu_s))
    typical_s, typical_cpu_s = (statistics.median(times) for times in zip(*times_s, strict=True))
    return Rate(amount / typical_s, amount / max(typical_cpu_s, 1e-9))


def number(value: float) -> str:
    """As a table shows it: three digits at least, thousands apart."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
