"""Turns the processes' cumulative reports into the rates of a common window of time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spreeze_zmq.broker.hosts import BY_HAND, HERE, Host, first_to_keep
from spreeze_zmq.broker.receipts import MOST_STREAMS
from spreeze_zmq.broker.window import LARGE, Spell, Window

#: Window lengths in seconds: the first one that holds ``MIN_GRANULES`` rollouts, or updates, is taken.
LENGTHS_S = (5.0, 10.0, 20.0, 30.0)
MIN_GRANULES = 8
#: The share of a window that a process's reports must span.
COVERED = 0.6
#: A report replaces the one before it if they are closer together than this.
LEAST_GAP_S = 0.05
#: Largest relative difference between a steady window's replay ratio and the target.
OFF_RATIO = 0.15


class Taken:
    """The transitions that a learner has received and refused, of all streams; a report lists those that have
    changed, and not all of very many.
    """

    def __init__(self) -> None:
        self.received = self.refused = 0
        self._streams: dict[str, tuple[int, int]] = {}

    def take(self, streams: Mapping[str, Mapping[str, int]]) -> None:
        """Enter what a report lists; of the streams those are kept that a learner may list again."""
        for name, stream in streams.items():
            received, refused = self._streams.pop(name, (0, 0))
            self._streams[name] = stream["received"], stream["refused"]
            self.received += stream["received"] - received
            self.refused += stream["refused"] - refused
        while len(self._streams) > 2 * MOST_STREAMS:
            del self._streams[next(iter(self._streams))]


class Windows:
    """The last reports of every living process that is ready.

    Args:
        replay_ratio: the target.
        cores: core seconds a second that the run may use.
        critics: names of the processes whose updates the replay ratio counts.
        followers: names of the other learners' processes.
        own: the launcher's samplers on its machine have numbers below this.
        start_s: longest wait for samplers that start on another machine, in seconds.

    Attributes:
        machines: name of a process -> its machine, for those on other ones. A sampler that is neither there
            nor one of the launcher's was started by hand.
    """

    def __init__(
        self,
        replay_ratio: float,
        cores: float,
        critics: Sequence[str],
        followers: Sequence[str] = (),
        own: float = math.inf,
        start_s: float = 30.0,
    ) -> None:
        self.replay_ratio, self.cores, self.own = replay_ratio, cores, own
        self.start_s, self._short_s = start_s, dict[tuple[str, int], float]()
        self.machines: Mapping[str, str] = {}
        self.critics, self.followers = critics, followers
        self._lives: dict[str, tuple[str, int]] = {}
        self._taken: dict[str, Taken] = defaultdict(Taken)
        self._reports: dict[str, deque[tuple[float, dict[str, float]]]] = defaultdict(deque)
        self._busy: deque[tuple[float, float]] = deque()

    def take(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> bool:
        """Enter a report; returns whether it is the first one of its incarnation."""
        life = (fields["role"], incarnation)
        begins = self._lives.get(sender) != life
        if begins:
            self.lose(sender)
            self._lives[sender] = life
        taken = self._taken[sender]
        taken.take(fields.get("taken", {}))
        _append(self._reports[sender], _figures(fields, taken), now_s)
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
            reports = self._reports[name]
            first = next((entry for entry in reports if entry[0] >= from_s), None)
            last = next((entry for entry in reversed(reports) if entry[0] <= to_s), None)
            if first and last and last[0] - first[0] >= COVERED * (to_s - from_s) > 0:
                spells[name] = _spell(role, name, first[1], last[1])
        return spells

    def busy_cores(self, from_s: float, to_s: float) -> float:
        """Cores busy with this run and with other programs; 0 where that is not known."""
        within = [entry for entry in self._busy if from_s <= entry[0] <= to_s]
        if len(within) < 2:
            return 0.0
        (began_s, before_s), (ended_s, after_s) = within[0], within[-1]
        return min(self.cores, max(0.0, after_s - before_s) / (ended_s - began_s))

    def window(self, hosts: Sequence[Host], granule: float, since_s: float, now_s: float) -> Window | None:
        """The shortest window that ends now and holds enough rollouts; None if there is none since the last
        change, if not all processes of the launcher's own machine have reported, or if samplers start on
        another one.

        Args:
            hosts: the machines; their load and what a sampler there makes are as last known.
            granule: transitions that arrive, or are needed, at once.
            since_s: the time of the last change.
            now_s: the end of the window.
        """
        if self._awaits(hosts, now_s):
            return None
        for length_s in LENGTHS_S:
            if now_s - length_s < since_s:
                return None
            window = self._window(hosts, granule, now_s - length_s, now_s)
            if window is None or window.received_per_s * length_s >= MIN_GRANULES * granule:
                return window
        return window

    def _awaits(self, hosts: Sequence[Host], now_s: float) -> bool:
        """Whether another machine has fewer samplers that are ready than the launcher keeps there, and that
        is new.
        """
        ready = Counter(self.machines.get(name) for name, life in self._lives.items() if life[0] == "sampler")
        others = [host for host in hosts if host.name != HERE]
        short = [(host.name, host.samplers) for host in others if ready[host.name] < host.samplers]
        self._short_s = {about: self._short_s.get(about, now_s) for about in short}
        return any(now_s - since_s < self.start_s for since_s in self._short_s.values())

    def _window(self, hosts: Sequence[Host], granule: float, from_s: float, to_s: float) -> Window | None:
        spells = self.spells(from_s, to_s)
        samplers = self._samplers(spells)
        own = sum(host.samplers for host in hosts if host.name == HERE)
        here = [name for name, spell in samplers.items() if spell.host == HERE]
        numbered = {f"sampler-{index}" for index in range(len(here))}
        if (
            len(here) != own
            or numbered != {*here}
            or not samplers
            or not {*self.critics, *self.followers} <= spells.keys()
        ):
            return None
        critics, followers = (
            tuple(replace(spells[name], host=self.machines.get(name, HERE)) for name in group)
            for group in (self.critics, self.followers)
        )
        busy = self.busy_cores(from_s, to_s)
        hosts = [replace(host, busy_cores=busy) if host.name == HERE else host for host in hosts]
        window = Window(tuple(samplers.values()), critics, followers, self.replay_ratio, tuple(hosts))
        window = _in_order(window)
        return replace(window, steady=self._is_steady(window, granule, from_s, to_s))

    def _samplers(self, spells: Mapping[str, Spell]) -> dict[str, Spell]:
        """The samplers among them, each with its machine."""
        found = {}
        for name, spell in spells.items():
            if spell.role == "sampler":
                elsewhere = self.machines.get(name, BY_HAND if spell.index >= self.own else HERE)
                found[name] = replace(spell, host=elsewhere)
        return found

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


def _in_order(window: Window) -> Window:
    """The same with what one sampler of each machine makes, and everything in the order of keeping."""
    makes: dict[str, list[float]] = defaultdict(list)
    for spell, makes_per_s in zip(window.samplers, window.makes_per_s, strict=True):
        makes[spell.host].append(makes_per_s)
    hosts = first_to_keep(
        [
            replace(host, makes_per_s=sum(made) / len(made)) if (made := makes[host.name]) else host
            for host in window.hosts
        ]
    )
    places = {BY_HAND: -1, **{host.name: place for place, host in enumerate(hosts)}}
    samplers = sorted(window.samplers, key=lambda spell: (places.get(spell.host, -1), spell.index))
    return replace(window, hosts=tuple(hosts), samplers=tuple(samplers))


def _append(entries: deque[Any], entry: Any, now_s: float) -> None:
    if entries and now_s < entries[-1][0] + LEAST_GAP_S:
        now_s, _ = entries.pop()
    entries.append((now_s, entry))
    while entries[0][0] < now_s - LENGTHS_S[-1]:
        entries.popleft()


def _figures(fields: Mapping[str, Any], taken: Taken) -> dict[str, float]:
    """The cumulative figures of a report, and of all streams ``taken``, by the names of their rates in
    ``Spell``.
    """
    clock_s = fields["clock_s"]
    return {
        "span_s": sum(clock_s.values()),
        **{name: clock_s.get(name, 0.0) for name in ("busy", "blocked", "starved")},
        "cpu": fields["cpu_s"],
        "produced_per_s": max(fields.get("pushed", {}).values(), default=0),
        "received_per_s": taken.received,
        "refused_per_s": taken.refused,
        "trained_per_s": fields["counters"].get("trained_transitions", 0),
    }


def _spell(role: str, name: str, first: Mapping[str, float], last: Mapping[str, float]) -> Spell:
    """The shares and rates between two reports; the index is -1 for a name without a number."""
    index = name.rpartition("-")[2]
    span_s = max(last["span_s"] - first["span_s"], 1e-9)
    rates: dict[str, Any] = {
        key: max(0.0, last[key] - first[key]) / span_s for key in last if key != "span_s"
    }
    return Spell(role, int(index) if index.isdecimal() else -1, span_s, **rates)
