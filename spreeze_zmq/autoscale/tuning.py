"""How many samplers were right, kept in the user's cache: the next run of the kind begins there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spreeze_zmq.autoscale import machine_cache
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import SAMPLER

#: No machine runs more processes than this of one role.
MOST = 100_000


@dataclass(frozen=True)
class Tuning:
    """A count that was right, and what it gave.

    Attributes:
        samplers: processes.
        env_steps_per_s: that all of them produced together.
        trained_transitions_per_s: that the critic-learner trained on.
    """

    samplers: int
    env_steps_per_s: float
    trained_transitions_per_s: float


def begin(plan: Plan) -> tuple[Plan, str]:
    """The plan with the number that was right the last time, and where it comes from: ``samplers`` of its
    ``measured`` says that too.

    A count that the topology fixes, and a lock-step run, which must repeat itself, stay as they are; then the
    text is empty.
    """
    sampler = plan.components[SAMPLER]
    found = recall(plan) if movable(plan) else None
    if found is None:
        return plan, ""
    initial = min(max(found.samplers, sampler.count.minimum), sampler.count.maximum)
    sampler = replace(sampler, count=replace(sampler.count, initial=initial))
    why = (
        f"as on this machine before: {found.samplers} gave {found.env_steps_per_s:,.0f} env steps and "
        f"{found.trained_transitions_per_s:,.0f} trained transitions a second"
    )
    measured = {**plan.measured, "samplers": {"chosen": sampler.count.initial, "source": why}}
    return replace(plan, components={**plan.components, SAMPLER: sampler}, measured=measured), why


def movable(plan: Plan) -> bool:
    """Whether the number of samplers is this machine's to choose: the topology gives a range, the launcher
    starts them, and the run need not repeat itself exactly.
    """
    sampler = plan.components[SAMPLER]
    ranged = sampler.count.minimum < sampler.count.maximum
    return ranged and sampler.launched and plan.balance.mode != "lockstep"


def recall(plan: Plan) -> Tuning | None:
    """What the cache knows of this machine and plan; None where that is nothing, or nothing readable."""
    return machine_cache.recall(_subject(plan), _read)


def remember(plan: Plan, tuning: Tuning) -> Path | None:
    """Keep what was measured; returns where, or None where it cannot be written."""
    return machine_cache.remember(_subject(plan), asdict(tuning))


def file_of(plan: Plan) -> Path:
    """Where the cache keeps this machine and plan."""
    return machine_cache.file_of(_subject(plan))


def _read(found: Any) -> Tuning:
    tuning = Tuning(**found)
    if type(tuning.samplers) is not int or not 1 <= tuning.samplers <= MOST:
        raise ValueError(f"{tuning.samplers!r} samplers")
    float(tuning.env_steps_per_s), float(tuning.trained_transitions_per_s)
    return tuning


def _subject(plan: Plan) -> dict[str, Any]:
    """Everything that the right count depends on, in JSON's own types."""
    roles = (SAMPLER, *plan.learning.learners)
    subject = {
        "what": "number of samplers",
        "machine": machine_cache.machine(),
        "env": plan.run.env,
        "env_kwargs": plan.run.env_kwargs,
        "algorithm": plan.algorithm,
        "balance": {
            "mode": plan.balance.mode,
            "replay_ratio": plan.balance.replay_ratio,
            "pin": plan.balance.pin,
        },
        "components": {role: _about(plan, role) for role in roles},
        "learners": {role: plan.components[role].count.initial for role in plan.learning.learners},
    }
    plain: dict[str, Any] = json.loads(json.dumps(subject))
    return plain


def _about(plan: Plan, role: str) -> Mapping[str, Any]:
    component = plan.components[role]
    return {"use": component.use, "threads": component.threads, "options": component.options}
