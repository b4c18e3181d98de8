"""What a machine would train with another number of samplers: a small model, fitted to one window of measured
rates.

Pure arithmetic. Every process costs seconds on a core and seconds off it for each transition; those on a core
are shared fairly among whoever wants them, foreign processes included; and the gates keep the ratio, so that
the slower side sets the pace. From that follows the pace for any number of samplers, also where more of them
would only take the cores from the learners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from spreeze_zmq.autoscale.spell import TELLING, Spell, Window

#: From this share of busy cores on, processes are taken to wait for one.
CROWDED = 0.85
#: The least share of a core that the model lets a process have.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Cost:
    """Of one transition to one process.

    Attributes:
        on_core_s: wall seconds when it has the cores that it wants.
        off_core_s: wall seconds that no core shortens: a sleep, a GPU, a debugger.
        cpu_s: CPU seconds; with several threads more than ``on_core_s``.
    """

    on_core_s: float
    off_core_s: float
    cpu_s: float

    def rate(self, share: float) -> float:
        """Transitions/s of a process that never waits for a peer and gets ``share`` of the cores it
        wants.
        """
        seconds = self.on_core_s / share + self.off_core_s
        return 1.0 / seconds if seconds > 0 else 0.0

    @classmethod
    def fitted(cls, spell: Spell, per_s: float, share: float) -> Cost | None:
        """From what a process did; None where it did nothing."""
        if per_s <= 0 or spell.busy <= 0:
            return None
        busy_s, cpu_s = spell.busy / per_s, spell.cpu / per_s
        on_core_s = min(cpu_s, busy_s * share)
        return cls(on_core_s, busy_s - on_core_s / share, cpu_s)


@dataclass(frozen=True)
class Model:
    """A run on a machine.

    Attributes:
        samplers: cost of a transition to each sampler that there is.
        fresh: to one that would be started.
        critic: cost of a trained transition to the critic-learner.
        actor_cpu_s: CPU seconds that the actor-learner spends for it.
        other_cores: wanted by everything else on the machine.
        cores: of the machine.
        replay_ratio: trained transitions for each sample.
    """

    samplers: tuple[Cost, ...]
    fresh: Cost
    critic: Cost
    actor_cpu_s: float
    other_cores: float
    cores: float
    replay_ratio: float

    def throughput(self, count: int, headroom: float = 1.0) -> float:
        """Trained transitions/s with ``count`` samplers, of whose capacity ``1 / headroom`` is counted on."""
        share = self._share(count, headroom)
        return self._pace(count, headroom, share)[0]

    def dearer(self, times: float) -> Model:
        """The same run where a trained transition costs both learners so many times as much."""
        critic = Cost(*(times * cost for cost in astuple(self.critic)))
        return replace(self, critic=critic, actor_cpu_s=times * self.actor_cpu_s)

    def capacity(self, count: int) -> float:
        """Samples/s of ``count`` samplers that nobody blocks, with cores to themselves."""
        return sum(rate for rate, _ in self._rates(count, 1.0))

    def fewest(self, low: int, high: int, worth: float, headroom: float) -> int:
        """The least count within ``low`` and ``high`` whose throughput is at least ``worth``, or else
        ``high``; more samplers never train less here.
        """
        while low < high:
            middle = (low + high) // 2
            if self.throughput(middle, headroom) >= worth:
                high = middle
            else:
                low = middle + 1
        return low

    def _rates(self, count: int, share: float) -> list[tuple[float, float]]:
        """Rate of each of the first ``count`` samplers and the CPU time it takes for a transition."""
        there = [(cost.rate(share), cost.cpu_s) for cost in self.samplers[:count]]
        return there + [(self.fresh.rate(share), self.fresh.cpu_s)] * (count - len(there))

    def _pace(self, count: int, headroom: float, share: float) -> tuple[float, float]:
        """Trained transitions/s where everybody gets ``share``, and the cores that this takes."""
        rates = self._rates(count, share)
        produced = sum(rate for rate, _ in rates)
        if produced <= 0:
            return 0.0, self.other_cores * share
        trained = min(self.critic.rate(share), self.replay_ratio * produced / headroom)
        cpu_of_sample = sum(rate * cpu_s for rate, cpu_s in rates) / produced
        cpu_s = self.critic.cpu_s + self.actor_cpu_s + cpu_of_sample / self.replay_ratio
        return trained, trained * cpu_s + self.other_cores * share

    def _share(self, count: int, headroom: float) -> float:
        """The share of the cores that everybody wants which there are enough for."""
        low, high = LEAST_SHARE, 1.0
        if self._pace(count, headroom, high)[1] <= self.cores:
            return high
        for _ in range(20):
            middle = (low + high) / 2
            if self._pace(count, headroom, middle)[1] <= self.cores:
                low = middle
            else:
                high = middle
        return low


def core_share(window: Window) -> float:
    """The share of the cores it wants that a process gets: 1 on a machine with cores to spare; else that of
    whoever waits least for anything else.
    """
    if window.busy_cores < CROWDED * window.cores:
        return 1.0
    spells = (*window.samplers, window.critic, window.actor)
    shares = [spell.core_share for spell in spells if spell.busy >= TELLING]
    return min(1.0, max([*shares, LEAST_SHARE]))


def fitted(window: Window, remembered: Cost | None = None) -> Model | None:
    """The model of a window; None where nothing was sampled or trained in it.

    Args:
        window: what was measured.
        remembered: the cost of a sample to a sampler in good health, as seen before. Where there is one
            sampler alone it tells whether a second would do better.
    """
    share = core_share(window)
    critic = Cost.fitted(window.critic, window.critic.trained_per_s, share)
    useful = window.useful
    samplers = [Cost.fitted(sampler, sampler.produced_per_s * useful, share) for sampler in window.samplers]
    there = [cost for cost in samplers if cost is not None]
    if critic is None or not there or window.replay_ratio <= 0:
        return None
    stuck = Cost(0.0, float("inf"), 0.0)
    candidates = [*there, remembered] if remembered is not None and len(there) == 1 else there
    ours = (*window.samplers, window.critic, window.actor)
    return Model(
        samplers=tuple(cost if cost is not None else stuck for cost in samplers),
        fresh=fastest(candidates),
        critic=critic,
        actor_cpu_s=window.actor.cpu / window.critic.trained_per_s,
        other_cores=max(0.0, window.busy_cores - sum(spell.cpu for spell in ours)) / share,
        cores=window.cores,
        replay_ratio=window.replay_ratio,
    )


def fastest(costs: Sequence[Cost]) -> Cost:
    """The one that samples most when it has a core."""
    return max(costs, key=lambda cost: cost.rate(1.0))
