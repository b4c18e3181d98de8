"""The number of samplers that a run begins with: the one that a run before it settled on, kept in the user's
cache; else no more than feed its learners.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spreeze_zmq.base import gpus, machine, provenance
from spreeze_zmq.base.importing import folder_now
from spreeze_zmq.base.rates import rate
from spreeze_zmq.base.trust import module_of
from spreeze_zmq.nn.native import library as native
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import SAMPLER, without_deadlines

#: A larger count in the cache is nonsense.
MOST = 100_000
#: Updates a second that learners make at most: one of small networks takes a GPU 0.3 ms, a core longer.
MOST_UPDATES_PER_S = 4_000
#: What a sampler takes for a step of all of its environments beside theirs: a policy of vectors, rollouts.
ACTING_S = 200e-6


@dataclass(frozen=True)
class Tuning:
    """A settled number of samplers and its rates.

    Attributes:
        samplers: number of processes.
        env_steps_per_s: of all of them together.
        trained_transitions_per_s: of the critic-learner.
    """

    samplers: int
    env_steps_per_s: float
    trained_transitions_per_s: float


def begin(plan: Plan) -> tuple[Plan, str]:
    """The plan with the number that the last run settled on, or with fewer than it has where these feed its
    learners, and one line on its source, which ``measured["samplers"]`` of the plan holds too.

    The plan is unchanged and the line empty where neither is so, the topology fixes the number, or the run
    is in lock-step and so must repeat itself.
    """
    if not movable(plan):
        return plan, ""
    count = plan.components[SAMPLER].count
    if (known := recall(plan)) is not None:
        initial = min(max(known.samplers, count.minimum), count.maximum)
        why = (
            f"as on this machine before: {known.samplers} gave {rate(known.env_steps_per_s)} env steps and "
            f"{rate(known.trained_transitions_per_s)} trained transitions a second"
        )
    elif (initial := max(count.minimum, enough(plan))) < count.initial:
        why = f"enough for {MOST_UPDATES_PER_S:,} updates a second by the time that one environment took"
    else:
        return plan, ""
    sampler = replace(plan.components[SAMPLER], count=replace(count, initial=initial))
    measured = {**plan.measured, "samplers": {"chosen": initial, "source": why}}
    return replace(plan, components={**plan.components, SAMPLER: sampler}, measured=measured), why


def enough(plan: Plan) -> int:
    """As many samplers as feed the fastest learners: what more of them make waits in front of these, and
    grows old. ``MOST`` where that cannot be said: for images, an environment that was not stepped, or a batch
    that is not known yet; and where versions are counted, whose size follows from the number at the start.
    """
    env, batch_size, balance = plan.environment, plan.learning.batch_size, plan.balance
    sees = len(env.obs_shape) > 1 or any(part.get("pixels") for part in env.obs_parts)
    step_s = float(plan.timing.get("step_s", 0.0))
    if sees or not step_s or not batch_size or balance.publish_every_updates:
        return MOST
    wanted_per_s = MOST_UPDATES_PER_S * batch_size / balance.replay_ratio
    each_s = step_s + ACTING_S / int(plan.components[SAMPLER].options.get("envs", 1))
    return min(MOST, math.ceil(wanted_per_s * each_s))


def movable(plan: Plan) -> bool:
    """Whether the number of samplers may change: the topology gives a range, the launcher starts the
    samplers, and the run need not repeat itself exactly.
    """
    sampler = plan.components[SAMPLER]
    ranged = sampler.count.minimum < sampler.count.maximum
    return ranged and sampler.launched and plan.balance.mode != "lockstep"


def recall(plan: Plan) -> Tuning | None:
    """The cached tuning of this plan on this machine; None where there is none, or none that can be read."""
    return machine.recall(subject_of(plan), _read)


def remember(plan: Plan, tuning: Tuning) -> Path | None:
    """Keep a tuning; returns its file, or None where it cannot be written."""
    return machine.remember(subject_of(plan), asdict(tuning))


def _read(found: Any) -> Tuning:
    tuning = Tuning(**found)
    if type(tuning.samplers) is not int or not 1 <= tuning.samplers <= MOST:
        raise ValueError(f"{tuning.samplers!r} samplers")
    float(tuning.env_steps_per_s), float(tuning.trained_transitions_per_s)
    return tuning


def subject_of(plan: Plan) -> dict[str, Any]:
    """Everything that the right count depends on."""
    roles = (SAMPLER, *plan.learning.learners)
    elsewhere = [role for role in plan.learning.learners if role in plan.placement]
    devices = {role: plan.components[role].options.get("device", "cpu") for role in roles}
    chosen = gpus.chosen_gpus() if set(devices.values()) != {"cpu"} else {}
    on_cpu = any(devices[role] == "cpu" for role in plan.learning.learners)
    own_code = {of: code for of, code in plan.own_code.items() if code}
    return {
        **({"elsewhere": elsewhere} if elsewhere else {}),
        **({"own_code": own_code} if own_code else {}),
        **({"chosen_gpus": chosen} if chosen else {}),
        **({"groups": plan.groups.count} if plan.groups.count > 1 else {}),
        **({"native": native.expected()} if on_cpu else {}),
        "what": "number of samplers",
        "machine": provenance.properties(),
        "env": plan.environment.id,
        **({"folder": folder} if (folder := _folder(plan)) else {}),
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


def _folder(plan: Plan) -> str:
    """The folder that an environment's own module comes from: another project may have one of that name."""
    return folder_now(module_of(plan.environment.id).partition(".")[0], sys.path)


def _about(plan: Plan, role: str) -> Mapping[str, Any]:
    component = plan.components[role]
    options = without_deadlines(component.options)
    return {"use": component.use, "threads": component.threads, "options": options}
