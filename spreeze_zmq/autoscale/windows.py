"""From the reports of processes to what each of them did over the same last seconds.

Pure bookkeeping: reports and times go in. A window is as short as the run allows: where rollouts and updates
are large and rare it grows until it holds enough of them for its rates to mean something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spreeze_zmq.autoscale.spell import Spell, Window

#: Lengths that a window may have, in seconds; the first that holds ``MIN_GRANULES`` is taken.
LENGTHS_S = (4.0, 8.0, 16.0, 30.0)
MIN_GRANULES = 8
#: The share of a window that a process's reports must span.
COVERED = 0.6
#: How far the two halves of a steady window, and its ratio and the target, may be apart.
DRIFT, OFF_RATIO = 0.25, 0.15


@dataclass(frozen=True)
class Snapshot:
    """One report's cumulative figures; ``heard_s`` is the broker's time, the rest the process's own."""

    heard_s: float
    clock_s: Mapping[str, float]
    cpu_s: float
    rss_bytes: int
    produced: float
    received: float
    refused: float
    trained: float
    stepped: float
    voluntary: float
    involuntary: float

    @classmethod
    def of(cls, fields: Mapping[str, Any], now_s: float) -> Snapshot:
        """From the fields of a report."""
        pushed, taken = fields.get("pushed", {}), fields.get("taken", {}).values()
        switches = fields.get("switches", {})
        return cls(
            heard_s=now_s,
            clock_s=fields["clock_s"],
            cpu_s=fields["cpu_s"],
            rss_bytes=fields["rss_bytes"],
            produced=pushed.get("critic_learner", max(pushed.values(), default=0)),
            received=sum(stream["received"] for stream in taken),
            refused=sum(stream["refused"] for stream in taken),
            trained=fields["counters"].get("trained_transitions", 0),
            stepped=fields["counters"].get("stepped_transitions", 0),
            voluntary=switches.get("voluntary", 0),
            involuntary=switches.get("involuntary", 0),
        )


class Windows:
    """The last snapshots of every process that lives.

    Args:
        replay_ratio: the target.
        granule: transitions that arrive or are asked for at once: the greater of a rollout and of what one
            update needs.
        cores: those that the run may use.
        lanes: role -> processes or threads that do the work of one of its processes, where they are several.
        num_critics: critic-learners, which train together.
    """

    def __init__(
        self,
        replay_ratio: float,
        granule: float,
        cores: int,
        lanes: Mapping[str, int] | None = None,
        num_critics: int = 1,
    ) -> None:
        self.replay_ratio, self.granule, self.cores = replay_ratio, granule, cores
        self.lanes, self.num_critics = lanes or {}, num_critics
        self._lives: dict[str, tuple[str, int, deque[Snapshot]]] = {}
        self._busy: deque[tuple[float, float]] = deque()

    def take(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter a report; another incarnation begins anew."""
        life = self._lives.get(sender)
        if life is None or life[1] != incarnation:
            life = self._lives[sender] = (fields["role"], incarnation, deque())
        _append(life[2], Snapshot.of(fields, now_s), now_s)

    def take_busy(self, cpu_s: float, now_s: float) -> None:
        """Enter the CPU seconds that everybody has used on the run's cores so far."""
        self._busy.append((now_s, cpu_s))
        while self._busy[0][0] < now_s - LENGTHS_S[-1]:
            self._busy.popleft()

    def lose(self, sender: str) -> None:
        """A process is gone."""
        self._lives.pop(sender, None)

    def spells(self, from_s: float, to_s: float) -> dict[str, Spell]:
        """What each process did, as far as its reports tell."""
        found = {}
        for name, (role, _, _) in self._lives.items():
            within = self._within(name, from_s, to_s)
            if len(within) > 1 and within[-1].heard_s - within[0].heard_s >= COVERED * (to_s - from_s):
                spell = _spell(role, _index(name), within[0], within[-1])
                found[name] = replace(spell, lanes=self.lanes.get(role, 1))
        return found

    def busy_cores(self, from_s: float, to_s: float) -> float:
        """How many of the run's cores were busy; 0 where it is not known."""
        within = [point for point in self._busy if from_s <= point[0] <= to_s]
        if len(within) < 2 or within[-1][0] <= within[0][0]:
            return 0.0
        return max(0.0, within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])

    def window(self, num_samplers: int, since_s: float, now_s: float) -> Window | None:
        """The shortest telling window that ends now.

        Args:
            num_samplers: how many there should be; where others are there, nothing is said.
            since_s: when the run last changed.
            now_s: the end of the window.
        """
        for length_s in LENGTHS_S:
            if now_s - length_s < since_s:
                return None
            window = self._window(num_samplers, now_s - length_s, now_s)
            if window is None:
                return None
            granules = window.critic.received_per_s * window.critic.span_s / self.granule
            if granules >= MIN_GRANULES or length_s == LENGTHS_S[-1]:
                return window
        return None

    def _window(self, num_samplers: int, from_s: float, to_s: float) -> Window | None:
        spells = self.spells(from_s, to_s)
        samplers = sorted((s for s in spells.values() if s.role == "sampler"), key=lambda spell: spell.index)
        critic, actor = self._critics(spells), spells.get("actor_learner-0")
        indices = [sampler.index for sampler in samplers]
        if critic is None or actor is None or indices != list(range(num_samplers)) or not indices:
            return None
        busy = self.busy_cores(from_s, to_s)
        return Window(
            samplers=tuple(samplers),
            critic=critic,
            actor=actor,
            replay_ratio=self.replay_ratio,
            cores=self.cores,
            busy_cores=min(float(self.cores), busy or sum(spell.cpu for spell in spells.values())),
            steady=self._is_steady(critic, from_s, to_s),
        )

    def _critics(self, spells: Mapping[str, Spell]) -> Spell | None:
        """All critic-learners as one; None where one has not told enough."""
        found = [spells.get(f"critic_learner-{index}") for index in range(self.num_critics)]
        there = [spell for spell in found if spell is not None]
        return Spell.together(there) if len(there) == len(found) else None

    def _is_steady(self, critic: Spell, from_s: float, to_s: float) -> bool:
        """Whether the ratio was kept and both halves agree, as nearly as whole rollouts allow."""
        received = critic.received_per_s * critic.span_s
        if received <= 0 or critic.trained_per_s <= 0:
            return False
        grain = 2 * self.granule / received
        ratio = critic.trained_per_s / critic.received_per_s
        if abs(ratio / self.replay_ratio - 1) > OFF_RATIO + grain:
            return False
        rates = self._halves(from_s, to_s)
        return bool(rates) and max(rates) - min(rates) <= (DRIFT + grain) * critic.trained_per_s

    def _halves(self, from_s: float, to_s: float) -> list[float]:
        """Trained transitions/s of all critic-learners before and after the middle of a window; none where
        one has told too little. A half ends at the report next to the middle, not at a time: however reports
        and looks at them fall together, there is one.
        """
        rates = [0.0, 0.0]
        for index in range(self.num_critics):
            within = self._within(f"critic_learner-{index}", from_s, to_s)
            if len(within) < 3:
                return []
            middle_s = (within[0].heard_s + within[-1].heard_s) / 2
            middle = min(within[1:-1], key=lambda snapshot: abs(snapshot.heard_s - middle_s))
            for half, ends in enumerate(((within[0], middle), (middle, within[-1]))):
                rates[half] += _spell("critic_learner", index, *ends).trained_per_s
        return rates

    def _within(self, name: str, from_s: float, to_s: float) -> list[Snapshot]:
        return [snapshot for snapshot in self._lives[name][2] if from_s <= snapshot.heard_s <= to_s]


def _index(name: str) -> int:
    """Of ``ROLE-INDEX``; -1 for a name that a stranger chose."""
    index = name.rpartition("-")[2]
    return int(index) if index.isdecimal() else -1


def _append(snapshots: deque[Snapshot], snapshot: Snapshot, now_s: float) -> None:
    snapshots.append(snapshot)
    while snapshots[0].heard_s < now_s - LENGTHS_S[-1]:
        snapshots.popleft()


def _spell(role: str, index: int, first: Snapshot, last: Snapshot) -> Spell:
    """The shares and rates between two reports; over the process's own clock, which stops for nothing."""
    spent = {name: last.clock_s[name] - first.clock_s.get(name, 0.0) for name in last.clock_s}
    span_s = max(sum(spent.values()), 1e-9)
    return Spell(
        role=role,
        index=index,
        span_s=span_s,
        busy=spent.get("busy", 0.0) / span_s,
        blocked=spent.get("blocked", 0.0) / span_s,
        starved=spent.get("starved", 0.0) / span_s,
        cpu=max(0.0, last.cpu_s - first.cpu_s) / span_s,
        rss_bytes=last.rss_bytes,
        produced_per_s=max(0.0, last.produced - first.produced) / span_s,
        received_per_s=max(0.0, last.received - first.received) / span_s,
        trained_per_s=max(0.0, last.trained - first.trained) / span_s,
        refused_per_s=max(0.0, last.refused - first.refused) / span_s,
        stepped_per_s=max(0.0, last.stepped - first.stepped) / span_s,
        voluntary_per_s=max(0.0, last.voluntary - first.voluntary) / span_s,
        involuntary_per_s=max(0.0, last.involuntary - first.involuntary) / span_s,
    )
