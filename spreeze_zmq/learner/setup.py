"""A run's algorithm with its options, and the memory that its replays take."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import experience_of
from spreeze_zmq.replay import MEMORY_SHARE, free_bytes, replay_of

log = logging.getLogger("spreeze")

#: Transitions of the small replay by which the size of one transition is measured.
SAMPLE = 1 << 10


def algorithm_of(plan: Plan) -> tuple[type[Algorithm], Any]:
    """The run's algorithm and its options as the algorithm's own frozen dataclass."""
    algorithm = algorithms.get(plan.run.algorithm)
    values = {name: value for name, value in plan.algorithm.items() if name != "name"}
    return algorithm, algorithms.options_from(algorithm.Options, values)


def replay_bytes(plan: Plan) -> dict[str, int]:
    """Learner -> bytes of its full replay; 0 for on-policy rounds, which are discarded after training."""
    if plan.learning.on_policy:
        return dict.fromkeys(plan.learning.learners, 0)
    _, options = algorithm_of(plan)
    small = replace(options, replay_capacity=SAMPLE, learning_starts=1)
    sizes = {}
    for role in plan.learning.learners:
        fields = plan.channels[experience_of(role)].fields
        # A table that nobody has written to takes no memory yet.
        sample = replay_of(fields, plan.environment, small, "cpu", 0)
        sizes[role] = int(options.replay_capacity / SAMPLE * sample.ring.memory_bytes)
    return sizes


def check_memory(plan: Plan) -> dict[str, int]:
    """The result of :func:`replay_bytes`, after a check of the replays on this machine's CPU.

    Raises:
        InputError: the replays together exceed the free memory; names the capacity that fits.
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
