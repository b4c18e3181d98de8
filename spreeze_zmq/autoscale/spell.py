"""What was measured: of one process over some seconds, and of all of them over the same ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: A process that works less of its time than this tells nothing of how long it waits for a core.
TELLING = 0.1
#: A sampler that does less than this share of what others like it do is not well.
LIMPS = 0.5
#: Cores beyond a whole number that are an error of measurement.
ROUNDING = 0.1


@dataclass(frozen=True)
class Spell:
    """What one process did over a window.

    Attributes:
        role: its job.
        index: its number among those of its role.
        span_s: seconds of its own clock that this covers.
        busy: share of them in which it worked, or wanted to.
        blocked: share in which a peer did not take.
        starved: share in which a peer did not give.
        cpu: cores that it used.
        rss_bytes: resident memory at the end.
        produced_per_s: transitions that it pushed.
        received_per_s: transitions that it took in.
        trained_per_s: transitions that it trained on.
        refused_per_s: transitions that it dropped, such as those that were too old.
        lanes: processes or threads that do its work side by side.
        stepped_per_s: transitions that it collected, those of a rollout under way among them.
        voluntary_per_s: how often it gave up its core to wait for something; 0 where it does not tell.
        involuntary_per_s: how often its core was taken from it.
    """

    role: str
    index: int
    span_s: float
    busy: float
    blocked: float
    starved: float
    cpu: float
    rss_bytes: int = 0
    produced_per_s: float = 0.0
    received_per_s: float = 0.0
    trained_per_s: float = 0.0
    refused_per_s: float = 0.0
    lanes: int = 1
    stepped_per_s: float = 0.0
    voluntary_per_s: float = 0.0
    involuntary_per_s: float = 0.0

    @property
    def core_share(self) -> float:
        """At least this share of the cores that it wanted it had, if it waited for nothing else; 1 is all.

        More cores than it is said to have lanes show how many it has at least.
        """
        cores = self.cpu / self.busy
        return cores / max(self.lanes, math.ceil(cores - ROUNDING))

    @classmethod
    def together(cls, spells: Sequence[Spell]) -> Spell:
        """Several processes of one role that do one work, as one: shares of time are means, the rest sums."""
        means = {
            name: sum(getattr(spell, name) for spell in spells) / len(spells)
            for name in ("span_s", "busy", "blocked", "starved")
        }
        sums = {
            name: sum(getattr(spell, name) for spell in spells)
            for name in (
                "cpu",
                "rss_bytes",
                "produced_per_s",
                "received_per_s",
                "trained_per_s",
                "refused_per_s",
            )
        }
        lanes = sum(spell.lanes for spell in spells)
        return cls(spells[0].role, spells[0].index, **means, **sums, lanes=lanes)


@dataclass(frozen=True)
class Window:
    """All processes over the same seconds, and the machine under them.

    Attributes:
        samplers: by index, from 0.
        critic: the learner whose updates the ratio counts.
        actor: the learner that follows it.
        replay_ratio: the target.
        cores: those that the run may use.
        busy_cores: how many of them were busy, whoever used them.
        steady: the rates did not drift in it and kept the ratio, so that decisions may rest on it.
    """

    samplers: tuple[Spell, ...]
    critic: Spell
    actor: Spell
    replay_ratio: float
    cores: int
    busy_cores: float
    steady: bool = True

    @property
    def produced_per_s(self) -> float:
        """Of all samplers together."""
        return sum(sampler.produced_per_s for sampler in self.samplers)

    @property
    def blocked(self) -> float:
        """Mean share of the samplers' time."""
        return sum(sampler.blocked for sampler in self.samplers) / max(1, len(self.samplers))

    @property
    def short_of_policies(self) -> float:
        """Mean share of their time in which samplers waited for a newer policy."""
        return sum(sampler.starved for sampler in self.samplers) / max(1, len(self.samplers))

    @property
    def limping(self) -> frozenset[int]:
        """The samplers that collect less than ``LIMPS`` of what the fastest does in as much time of work."""
        collected = {
            s.index: (s.stepped_per_s or s.produced_per_s) / s.busy for s in self.samplers if s.busy > TELLING
        }
        fastest = max(collected.values(), default=0.0)
        return frozenset(index for index, rate in collected.items() if rate < LIMPS * fastest)

    @property
    def useful(self) -> float:
        """The share of what arrives that is trained on; the rest is refused, as too old."""
        arrived = self.critic.received_per_s + self.critic.refused_per_s
        return self.critic.received_per_s / arrived if arrived > 0 else 1.0

    @property
    def measured_ratio(self) -> float:
        """Transitions trained on for each one received; 0 where none was."""
        received = self.critic.received_per_s
        return self.critic.trained_per_s / received if received > 0 else 0.0
