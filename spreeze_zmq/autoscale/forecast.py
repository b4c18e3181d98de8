"""How many samplers a run should have from its start: decided once, before there are rates of a settled run.

The first samplers produce at full speed until the learners have enough to begin with, and the learners
rehearse their updates meanwhile. What that cost everybody goes into the same model that moves the count
later. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from spreeze_zmq.autoscale.rebalance import GAIN, ROOM, SPARE, TOLERANCE, WORTHWHILE, Change
from spreeze_zmq.autoscale.spell import Spell
from spreeze_zmq.autoscale.throughput import Cost, Model, fastest

#: A core that is taken from a process comes back after about so many seconds.
AWAY_S = 4e-3
#: A sampler that has worked for fewer seconds than this tells too little of what its steps cost.
LEAST_WORK_S = 0.05


@dataclass
class Forecast:
    """What the processes have told so far.

    Attributes:
        num_critics: critic-learners, which train together.
        replay_ratio: trained transitions for each sample.
        policy_delay: critic updates for each of the actor.
        on_cpu: learners compute on cores: the time that they are on none they wait for one.
        figures: what was decided from, for the journal; empty before.
    """

    num_critics: int
    replay_ratio: float
    policy_delay: int = 1
    on_cpu: bool = True
    figures: dict[str, Any] = field(default_factory=dict)
    _rehearsed: dict[str, Cost] = field(default_factory=dict)

    def take(self, sender: str, rehearsal: Mapping[str, float]) -> None:
        """Enter what a learner tells of its rehearsal; nonsense is passed over."""
        cost = rehearsed(rehearsal)
        if cost is not None:
            self._rehearsed[sender] = cost

    def decide(
        self, spells: Mapping[str, Spell], num_samplers: int, limits: tuple[int, int], cores: int, busy: float
    ) -> Change | None:
        """The change to begin with, if any. ``figures`` are empty still where somebody has not told enough.

        Args:
            spells: what each process did since all were ready.
            num_samplers: how many there are.
            limits: fewest and most that the topology allows.
            cores: those that the run may use.
            busy: how many of them were, whoever used them.
        """
        samplers = [sampled(spells.get(f"sampler-{index}")) for index in range(num_samplers)]
        critics = [self._critic(spells, f"critic_learner-{index}") for index in range(self.num_critics)]
        actor_cpu_s = self._actor_cpu_s(spells)
        there = [cost for cost in samplers if cost is not None]
        known = [cost for cost in critics if cost is not None]
        if len(there) < num_samplers or len(known) < self.num_critics or actor_cpu_s is None:
            return None
        ours = sum(spell.cpu for spell in spells.values() if spell.role != "evaluator")
        model = Model(
            samplers=tuple(there),
            fresh=fastest(there),
            critic=together(known),
            actor_cpu_s=actor_cpu_s,
            other_cores=max(0.0, min(busy, cores) - ours),
            cores=cores,
            replay_ratio=self.replay_ratio,
        )
        count = wanted(model, num_samplers, *limits)
        expected = {str(n): model.throughput(n) for n in sorted({num_samplers, count, *limits})}
        self.figures = {
            "samplers": num_samplers,
            "wanted": count,
            "sample": asdict(model.fresh),
            "critic": asdict(model.critic),
            "actor_cpu_s": model.actor_cpu_s,
            "sampler_makes_per_s": model.fresh.rate(1.0),
            "learners_could_take_per_s": could_take(model),
            "other_cores": model.other_cores,
            "cores": cores,
            "expected_trained_per_s": expected,
        }
        if count == num_samplers:
            return None
        return Change("sampler", num_samplers, count, reason(model, num_samplers, count))

    def _critic(self, spells: Mapping[str, Spell], name: str) -> Cost | None:
        """As rehearsed, or as the first updates of the run cost it."""
        spell = spells.get(name)
        if name in self._rehearsed or spell is None or spell.trained_per_s <= 0:
            return self._rehearsed.get(name)
        busy_s, cpu_s = spell.busy / spell.trained_per_s, spell.cpu / spell.trained_per_s
        return Cost(min(busy_s, cpu_s), 0.0 if self.on_cpu else max(0.0, busy_s - cpu_s), cpu_s)

    def _actor_cpu_s(self, spells: Mapping[str, Spell]) -> float | None:
        """CPU seconds of the actor-learner for a trained transition, likewise."""
        if "actor_learner-0" in self._rehearsed:
            return self._rehearsed["actor_learner-0"].cpu_s / self.policy_delay
        actor = spells.get("actor_learner-0")
        trained_per_s = sum(spell.trained_per_s for spell in spells.values())
        return actor.cpu / trained_per_s if actor is not None and trained_per_s > 0 else None


def wanted(model: Model, count: int, minimum: int, maximum: int) -> int:
    """The number of samplers to go on with, under the same rules as later."""
    here = model.throughput(count)
    grown = model.fewest(count, maximum, (1 - TOLERANCE) * model.throughput(maximum), ROOM)
    if model.throughput(grown) > (1 + GAIN) * here:
        return grown
    fewer = model.fewest(minimum, count, (1 - TOLERANCE) * here, SPARE)
    return fewer if fewer <= WORTHWHILE * count else count


def could_take(model: Model) -> float:
    """Samples/s that a critic-learner which never starves would take."""
    return model.critic.rate(1.0) / model.replay_ratio


def reason(model: Model, count: int, wanted: int) -> str:
    """One line: what changes, and the figures that speak for it."""
    return (
        f"samplers {count} -> {wanted} at the start: a sampler makes {model.fresh.rate(1.0):,.0f} samples a "
        f"second, the learners could take {could_take(model):,.0f}; {wanted} should train "
        f"{model.throughput(wanted):,.0f} transitions a second, {count} would {model.throughput(count):,.0f}"
    )


def sampled(spell: Spell | None) -> Cost | None:
    """What a sample cost a sampler; None where it has hardly worked yet.

    The time that it was at work and on no core it waited for a core, or slept. Whose core was taken from it
    more often than it gave it up did not sleep; of others each such loss explains ``AWAY_S``.
    """
    per_s = spell.stepped_per_s or spell.produced_per_s if spell is not None else 0.0
    if spell is None or per_s <= 0 or spell.busy * spell.span_s < LEAST_WORK_S:
        return None
    busy_s, cpu_s = spell.busy / per_s, spell.cpu / per_s
    away_s = max(0.0, busy_s - cpu_s / spell.lanes)
    waited_s = away_s
    if spell.involuntary_per_s <= spell.voluntary_per_s:
        waited_s = min(away_s, AWAY_S * spell.involuntary_per_s / spell.lanes / per_s)
    on_core_s = min(cpu_s, busy_s - waited_s)
    return Cost(on_core_s, busy_s - waited_s - on_core_s, cpu_s)


def rehearsed(told: Mapping[str, float]) -> Cost | None:
    """What a transition cost a learner in its rehearsal; None where that makes no sense."""
    transitions, seconds, cpu_s = (told.get(name, 0.0) for name in ("transitions", "seconds", "cpu_s"))
    if not (0 < transitions < math.inf and 0 < seconds < math.inf and 0 <= cpu_s < math.inf):
        return None
    on_core_s = min(seconds, cpu_s) / transitions
    return Cost(on_core_s, seconds / transitions - on_core_s, cpu_s / transitions)


def together(costs: Sequence[Cost]) -> Cost:
    """Several learners that train as one: each trains a part of the transitions."""
    on_core_s, off_core_s, cpu_s = (sum(part) / len(costs) for part in zip(*map(astuple, costs), strict=True))
    return Cost(on_core_s / len(costs), off_core_s / len(costs), cpu_s)
