"""What every process of a run did over the same seconds, as shares and rates, for ``knobs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from spreeze_zmq.broker.hosts import HERE, Host

#: Smaller shares of time, in which a process is busy or waits, do not count.
NOTICEABLE = 0.1
#: Rates that differ by this share have changed; this share of waiting is far too much.
LARGE = 0.25
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
        host: the name of its machine.
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
    host: str = HERE


@dataclass(frozen=True)
class Window:
    """The rates of all processes over the same seconds, and the load of the machines.

    Attributes:
        samplers: in the order in which they would be kept, see :func:`first_to_keep`.
        critics: the learners whose updates the replay ratio counts; several are summed.
        followers: the other learners.
        replay_ratio: the target.
        hosts: the machines, the launcher's own among them.
        steady: the rates did not drift and kept the ratio; only then is anything decided.
    """

    samplers: tuple[Spell, ...]
    critics: tuple[Spell, ...]
    followers: tuple[Spell, ...]
    replay_ratio: float
    hosts: tuple[Host, ...]
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
    def here(self) -> Host:
        """The launcher's own machine."""
        return next(host for host in self.hosts if host.name == HERE)

    @cached_property
    def core_shares(self) -> dict[str, float]:
        """For each machine the share of its busy time in which a process has a core: 1 on a machine with idle
        cores, else the largest share of any process.
        """
        at_work = [spell for group in self.groups for spell in group if spell.busy >= NOTICEABLE]
        return {
            host.name: min(
                1.0,
                max((spell.cpu / spell.busy for spell in at_work if spell.host == host.name), default=1.0),
            )
            if host.is_crowded
            else 1.0
            for host in self.hosts
        }

    def work(self, spell: Spell) -> float:
        """The share of its time that a process's work would take without waiting for a core."""
        waited = spell.cpu * (1 / max(self.core_shares.get(spell.host, 1.0), LEAST_SHARE) - 1)
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
