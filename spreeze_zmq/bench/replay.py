"""What feeding the learners costs in ``spreeze bench``: taking rollouts in and drawing batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from spreeze_zmq.bench.figures import Figure, Rate, in_turn, paired, repeated
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.random_rollout import random_rollout

if TYPE_CHECKING:
    from spreeze_zmq.replay import Batch, Replay

INGESTED_PER_S = 30_000
CAPACITY = 1_000_000
ROUNDS = 5


def measure_feeding(
    spec: EnvironmentSpec, update: Callable[[Batch], object], at_hand: Batch, what: str, seconds: float
) -> list[Figure]:
    """Critic updates with their replay beside updates of a batch at hand.

    Args:
        spec: gives the shapes.
        update: one critic update.
        at_hand: a batch; as large ones are drawn.
        what: names precision and batch size.
        seconds: for all.
    """
    replay, rollout = full_replay(spec), random_rollout(spec)
    batch_size = len(at_hand.reward)

    def alone(turn_s: float) -> Rate:
        return repeated(lambda: update(at_hand), 1, turn_s)

    def ingesting(turn_s: float) -> Rate:
        began_s, added = time.perf_counter(), 0

        def step() -> None:
            nonlocal added
            while added < INGESTED_PER_S * (time.perf_counter() - began_s):
                replay.add(rollout)
                added += rollout.num_transitions
            update(at_hand)

        return repeated(step, 1, turn_s)

    def sampling(turn_s: float) -> Rate:
        return repeated(lambda: update(replay.sample(batch_size)), 1, turn_s)

    ways = {"alone": alone, "ingesting": ingesting, "sampling": sampling}
    rates = {way: [rate.per_s for rate in rates] for way, rates in in_turn(ways, seconds, ROUNDS).items()}
    notes = {
        "ingesting": f"{INGESTED_PER_S:,} transitions/s come in",
        "sampling": f"drawn out of {CAPACITY:,}",
    }
    return [
        replace(paired(f"{way}, {what}", "updates/s", rates["alone"], rates[way]), note=note)
        for way, note in notes.items()
    ]


def full_replay(spec: EnvironmentSpec, device: str = "cpu") -> Replay:
    """A replay that overwrites with every rollout."""
    from spreeze_zmq.replay import Replay

    assert spec.action_kind == "box"
    replay = Replay(CAPACITY, spec.obs_shape, spec.obs_dtype, spec.action_shape, "float32", 0.99, 1, device)
    rollout = random_rollout(spec)
    for _ in range(math.ceil(CAPACITY / rollout.num_transitions)):
        replay.add(rollout)
    return replay
