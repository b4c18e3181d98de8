"""Turns the processes' cumulative reports into the rates of a common window of time, for ``knobs``."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

#: Window lengths in seconds: the first one that holds ``MIN_GRANULES`` rollouts, or updates, is taken.
LENGTHS_S = (5.0, 10.0, 20.0, 30.0)
MIN_GRANULES = 8
#: The share of a window that a process's reports must span.
COVERED = 0.6
#: A report replaces the one before it if they are closer together than this.
LEAST_GAP_S = 0.05
#: From this share of busy cores on, processes compete for cores.
CROWDED = 0.85
#: Smaller shares of time, in which a process is busy or waits, do not count.
NOTICEABLE = 0.1
#: Rates that differ by this share have changed; this share of waiting is far too much.
LARGE = 0.25
#: Largest relative difference between a steady window's replay ratio and the target.
OFF_RATIO = 0.15
#: Lower bound of shares that are divided by.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Spell:
    """Shares and rates of one process between two of its reports; rates are transitions/s.

    Attributes:
        role: its role.
        index: its number within the role.
        span_s: seconds by its own clock.
        busy: share of ``span_s`` in which it worked or waited for a core.
        blocked: share in which a peer accepted no more.
        starved: share in which a peer sent nothing.
        cpu: cores used.
        produced_per_s: pushed.
        received_per_s: received and kept.
        refused_per_s: received and dropped, for example as too old.
        trained_per_s: trained on.
    """

    role: str
    index: int
    span_s: float
    busy: float
    blocked: float
    starved: float
    cpu: float
    produced_per_s: float = 0.0
    received_per_s: float = 0.0
    refused_per_s: float = 0.0
    trained_per_s: float = 0.0


@dataclass(frozen=True)
class Window:
    """The rates of all processes over the same seconds, and the load of the machine.

    Attributes:
        samplers: by index, from 0.
        critics: the learners whose updates the replay ratio counts; several are summed.
        followers: the other learners.
        replay_ratio: the target.
        cores: cores that the run may use.
        busy_cores: how many of them were busy, with this run or with other programs.
        steady: the rates did not drift and kept the ratio; only then is anything decided.
    """

    samplers: tuple[Spell, ...]
    critics: tuple[Spell, ...]
    followers: tuple[Spell, ...]
    replay_ratio: float
    cores: int
    busy_cores: float
    steady: bool = True

    @property
    def groups(self) -> tuple[tuple[Spell, ...], ...]:
        """All measured processes."""
        return self.samplers, self.critics, self.followers

    @property
    def trained_per_s(self) -> float:
        """Transitions/s trained on, the figure that every change is judged by."""
        return total(self.critics, "trained_per_s")

    @property
    def received_per_s(self) -> float:
        """Transitions/s that the critic-learners kept."""
        return total(self.critics, "received_per_s")

    @property
    def produced_per_s(self) -> float:
        return total(self.samplers, "produced_per_s")

    @property
    def starved(self) -> float:
        """Mean share of time in which the critic-learners starved."""
        return mean(self.critics, "starved")

    @property
    def blocked(self) -> float:
        """Mean share of time in which the samplers were blocked."""
        return mean(self.samplers, "blocked")

    @property
    def short_of_policies(self) -> float:
        """Mean share of time in which the samplers waited for a newer policy."""
        return mean(self.samplers, "starved")

    @property
    def useful(self) -> float:
        """Share of the arriving transitions that the critic-learners keep; the rest is too old."""
        arrived = self.received_per_s + total(self.critics, "refused_per_s")
        return self.received_per_s / arrived if arrived > 0 else 1.0

    @property
    def measured_ratio(self) -> float:
        """Transitions trained on for each one received; 0 where none was."""
        return self.trained_per_s / self.received_per_s if self.received_per_s > 0 else 0.0

    @property
    def core_share(self) -> float:
        """The share of its busy time in which a process has a core: 1 on a machine with idle cores, else the
        largest share of any process.
        """
        if self.busy_cores < CROWDED * self.cores:
            return 1.0
        at_work = [spell for group in self.groups for spell in group if spell.busy >= NOTICEABLE]
        return min(1.0, max((spell.cpu / spell.busy for spell in at_work), default=1.0))

    def work(self, spell: Spell) -> float:
        """The share of its time that a process's work would take without waiting for a core."""
        waited = spell.cpu * (1 / max(self.core_share, LEAST_SHARE) - 1)
        return max(spell.busy - waited, min(spell.cpu, spell.busy), LEAST_SHARE)

    @property
    def makes_per_s(self) -> list[float]:
        """Useful samples/s of which each sampler is capable, neither blocked nor waiting for a core."""
        return [self.useful * spell.produced_per_s / self.work(spell) for spell in self.samplers]

    @property
    def takes_per_s(self) -> float:
        """Samples/s that the critic-learners could take if they never starved or waited for a core."""
        works = sum(self.work(spell) for spell in self.critics) / len(self.critics)
        return self.trained_per_s / works / self.replay_ratio


def total(spells: Sequence[Spell], name: str) -> float:
    """The sum of one figure over processes."""
    return float(sum(getattr(spell, name) for spell in spells))


def mean(spells: Sequence[Spell], name: str) -> float:
    """The mean of one figure over processes; 0 for none."""
    return total(spells, name) / max(1, len(spells))


class Windows:
    """The last reports of every living process.

    Args:
        replay_ratio: the target.
        cores: cores that the run may use.
        critics: names of the processes whose updates the replay ratio counts.
        followers: names of the other learners' processes.
        own: samplers whose number is below this are the launcher's on this machine; the others, on machines
            that joined or started by hand, have no part in the windows but what learners receive from them.
    """

    def __init__(
        self,
        replay_ratio: float,
        cores: int,
        critics: Sequence[str],
        followers: Sequence[str] = (),
        own: float = math.inf,
    ) -> None:
        self.replay_ratio, self.cores, self.own = replay_ratio, cores, own
        self.critics, self.followers = critics, followers
        self._lives: dict[str, tuple[str, int]] = {}
        self._taken: dict[str, dict[str, Mapping[str, int]]] = defaultdict(dict)
        self._reports: dict[str, deque[tuple[float, dict[str, float]]]] = defaultdict(deque)
        self._busy: deque[tuple[float, float]] = deque()

    def take(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> bool:
        """Enter a report; returns whether it is the first one of its incarnation."""
        life = (fields["role"], incarnation)
        begins = self._lives.get(sender) != life
        if begins:
            self.lose(sender)
            self._lives[sender] = life
        taken: dict[str, Mapping[str, int]] = {}
        if "taken" in fields:  # a report lists the streams that have changed, and not all of very many
            taken = self._taken[sender]
            taken.update(fields["taken"])
        _append(self._reports[sender], _figures(fields, taken.values()), now_s)
        return begins

    def take_busy(self, cpu_s: float, now_s: float) -> None:
        """Enter the CPU seconds that all programs have used on the run's cores so far."""
        _append(self._busy, cpu_s, now_s)

    def lose(self, sender: str) -> None:
        """Forget a process that has ended."""
        self._lives.pop(sender, None)
        self._reports.pop(sender, None)
        self._taken.pop(sender, None)

    def spells(self, from_s: float, to_s: float) -> dict[str, Spell]:
        """The spell of each process whose reports cover the time."""
        spells = {}
        for name, (role, _) in self._lives.items():
            within = self._within(name, from_s, to_s)
            if len(within) > 1 and within[-1][0] - within[0][0] >= COVERED * (to_s - from_s):
                spells[name] = _spell(role, name, within[0][1], within[-1][1])
        return spells

    def busy_cores(self, from_s: float, to_s: float) -> float:
        """Cores busy with this run and with other programs; 0 where that is not known."""
        within = [entry for entry in self._busy if from_s <= entry[0] <= to_s]
        if len(within) < 2:
            return 0.0
        (began_s, before_s), (ended_s, after_s) = within[0], within[-1]
        return min(float(self.cores), max(0.0, after_s - before_s) / (ended_s - began_s))

    def window(self, num_samplers: int, granule: float, since_s: float, now_s: float) -> Window | None:
        """The shortest window that ends now and holds enough rollouts; None if there is none since the last
        change, or if not all processes have reported.

        Args:
            num_samplers: the number of samplers that must have reported.
            granule: transitions that arrive, or are needed, at once.
            since_s: the time of the last change.
            now_s: the end of the window.
        """
        for length_s in LENGTHS_S:
            if now_s - length_s < since_s:
                return None
            window = self._window(num_samplers, granule, now_s - length_s, now_s)
            if window is None or window.received_per_s * length_s >= MIN_GRANULES * granule:
                return window
        return window

    def _window(self, num_samplers: int, granule: float, from_s: float, to_s: float) -> Window | None:
        spells = self.spells(from_s, to_s)
        there = {name for name, spell in spells.items() if spell.role == "sampler" and spell.index < self.own}
        names = [f"sampler-{index}" for index in range(num_samplers)]
        if there != set(names) or not names or not {*self.critics, *self.followers} <= spells.keys():
            return None
        samplers, critics, followers = (
            tuple(spells[name] for name in group) for group in (names, self.critics, self.followers)
        )
        busy = self.busy_cores(from_s, to_s)
        window = Window(samplers, critics, followers, self.replay_ratio, self.cores, busy)
        return replace(window, steady=self._is_steady(window, granule, from_s, to_s))

    def _is_steady(self, window: Window, granule: float, from_s: float, to_s: float) -> bool:
        """Whether the ratio was kept and both halves agree, to the precision of whole rollouts."""
        if min(window.received_per_s, window.trained_per_s, window.produced_per_s) <= 0:
            return False
        rounding = 2 * granule / (window.received_per_s * (to_s - from_s))
        off_ratio = abs(window.measured_ratio / self.replay_ratio - 1)
        halves = [0.0, 0.0]
        for name in self.critics:
            within = self._within(name, from_s, to_s)
            middle = len(within) // 2
            for half, (first, last) in enumerate(((0, middle), (middle, -1))):
                halves[half] += _spell("", name, within[first][1], within[last][1]).trained_per_s
        apart = abs(halves[0] - halves[1]) / window.trained_per_s
        return off_ratio <= OFF_RATIO + rounding and apart <= LARGE + rounding

    def _within(self, name: str, from_s: float, to_s: float) -> list[tuple[float, dict[str, float]]]:
        return [entry for entry in self._reports[name] if from_s <= entry[0] <= to_s]


def _append(entries: deque[Any], entry: Any, now_s: float) -> None:
    if entries and now_s < entries[-1][0] + LEAST_GAP_S:
        now_s, _ = entries.pop()
    entries.append((now_s, entry))
    while entries[0][0] < now_s - LENGTHS_S[-1]:
        entries.popleft()


def _figures(fields: Mapping[str, Any], taken: Collection[Mapping[str, int]]) -> dict[str, float]:
    """The cumulative figures of a report, and of all streams ``taken``, by the names of their rates in
    ``Spell``.
    """
    clock_s = fields["clock_s"]
    return {
        "span_s": sum(clock_s.values()),
        **{name: clock_s.get(name, 0.0) for name in ("busy", "blocked", "starved")},
        "cpu": fields["cpu_s"],
        "produced_per_s": max(fields.get("pushed", {}).values(), default=0),
        "received_per_s": sum(stream["received"] for stream in taken),
        "refused_per_s": sum(stream["refused"] for stream in taken),
        "trained_per_s": fields["counters"].get("trained_transitions", 0),
    }


def _spell(role: str, name: str, first: Mapping[str, float], last: Mapping[str, float]) -> Spell:
    """The shares and rates between two reports; the index is -1 for a name without a number."""
    index = name.rpartition("-")[2]
    span_s = max(last["span_s"] - first["span_s"], 1e-9)
    rates = {key: max(0.0, last[key] - first[key]) / span_s for key in last if key != "span_s"}
    return Spell(role, int(index) if index.isdecimal() else -1, span_s, **rates)
