"""The memory of the replays: what those of all learners take together, and what outlives a learner."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from spreeze_zmq import kept_memory
from spreeze_zmq.errors import InputError
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import experience_of
from spreeze_zmq.replay import MEMORY_SHARE, ObservationReplay, Replay, free_bytes, replay_of

log = logging.getLogger("spreeze")

#: Transitions by which the size of one is measured.
SAMPLE = 1 << 10


def replay_bytes(plan: Plan) -> dict[str, int]:
    """By learner, the bytes of its full replay; 0 for rounds of rollouts, which are thrown away."""
    if plan.learning.on_policy:
        return dict.fromkeys(plan.learning.learners, 0)
    _, options = algorithm_of(plan)
    environment = plan.environment
    fields = {role: plan.channels[experience_of(role)].fields for role in plan.learning.learners}
    small = replace(options, replay_capacity=SAMPLE, learning_starts=1)
    times = options.replay_capacity / SAMPLE
    # Tables that nobody has written to take no memory yet.
    return {
        role: int(times * replay_of(fields[role], environment, small, "cpu", 0).ring.memory_bytes)
        for role in fields
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


def keep(replay: Replay | ObservationReplay) -> None:
    """Hold a replay where it outlives its learner, if the launcher has memory for that, and go on with what
    the learner's predecessor has left there.
    """
    descriptor = kept_memory.inherited()
    if descriptor is not None:
        replay.keep_in(descriptor)
    if len(replay):
        log.info(
            "the replay is back: %s transitions outlived the process before this one", f"{len(replay):,}"
        )
