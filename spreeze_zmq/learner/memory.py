"""The memory that the replays of all learners take together, before they are filled."""

from __future__ import annotations

import torch

from spreeze_zmq.errors import InputError
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import experience_of
from spreeze_zmq.replay import MEMORY_SHARE, free_bytes, replay_of


def replay_bytes(plan: Plan) -> dict[str, int]:
    """By learner, the bytes of its full replay; 0 for rounds of rollouts, which are thrown away.

    Raises:
        InputError: one does not fit in the memory that is free.
    """
    if plan.learning.on_policy:
        return dict.fromkeys(plan.learning.learners, 0)
    _, options = algorithm_of(plan)
    environment = plan.environment
    fields = {role: plan.channels[experience_of(role)].fields for role in plan.learning.learners}
    # Tables that nobody has written to take no memory yet.
    return {
        role: replay_of(fields[role], environment, options, "cpu", 0).ring.memory_bytes for role in fields
    }


def check_memory(plan: Plan) -> dict[str, int]:
    """``replay_bytes``, held against the memory of the machine for the learners on its CPU.

    Raises:
        InputError: together they do not fit in the memory that is free; says what would.
    """
    sizes = replay_bytes(plan)
    on_cpu = {role for role in sizes if plan.components[role].options.get("device", "cpu") == "cpu"}
    total, free = sum(sizes[role] for role in on_cpu), free_bytes(torch.device("cpu"))
    if total > MEMORY_SHARE * free:
        capacity = int(plan.algorithm["replay_capacity"] * MEMORY_SHARE * free / total)
        raise InputError(
            f"the replays of {' and '.join(sorted(on_cpu))} take {total / 1e9:.1f} GB together, "
            f"{free / 1e9:.1f} GB are free: lower algorithm.replay_capacity to at most {capacity:,}"
        )
    return sizes
