"""The replay section of ``spreeze bench``: storing and drawing beside bare copies, and the cost of feeding.

Everything is measured in a process with the environment of a learner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.commands.bench import isolated
from spreeze_zmq.commands.bench.figures import (
    Figure,
    Job,
    Rate,
    Section,
    Way,
    by_clock,
    in_turn,
    paired,
    repeated,
)
from spreeze_zmq.commands.bench.trial import timed
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.nn.device import WARM_UP_CALLS, Download
from spreeze_zmq.replay import Batch, Replay, replay_of

#: Transitions/s that are stored between updates.
INGESTED_PER_S = 30_000
#: Upper bounds of the replay, in transitions and bytes.
CAPACITY, CAPACITY_BYTES = 1_000_000, 1 << 30
ROUNDS = 5
#: A learner's default.
PUBLISH_INTERVAL_S = 0.05


def measure(job: Job) -> Section:
    """Measure for about ``job.seconds``; raises like :func:`isolated.figures_of`."""
    if algorithms.get(job.algorithm).on_policy():
        return Section("replay", f"{job.algorithm} trains on each rollout when it comes and keeps none", [])
    about = (
        f"the critics' of {job.algorithm} in {job.env_id}, full, on {job.device}; limit: bare copies of as "
        "many bytes, and updates of a batch at hand"
    )
    return Section("replay", about, isolated.figures_of("replay", job))


def figures(job: Job) -> list[Figure]:
    """Storing, drawing, and updates with something else between; to be called in a learner's process."""
    kind, spec = algorithms.get(job.algorithm), envs.probe(job.env_id)
    rollout, options = random_rollout(spec), kind.Options()
    size = options.reference_batch_size if options.batch_size == "auto" else options.batch_size
    assert rollout.obs is not None
    assert rollout.action is not None
    # Two observations, the action, reward and discount.
    each = 2 * rollout.obs[0, 0].nbytes + rollout.action[0, 0].nbytes + 8
    rows = max(size, rollout.num_transitions, min(CAPACITY, options.replay_capacity, CAPACITY_BYTES // each))
    options = replace(options, replay_capacity=rows, learning_starts=1, batch_size=size)
    replay = replay_of(kind.fields_of("critic"), spec, options, job.device, 1)
    for _ in range(math.ceil(rows / rollout.num_transitions)):
        replay.add(rollout)
    assert isinstance(replay, Replay)  # of transitions, as every critic has it
    half = algorithms.make("critic", kind, options, spec, job.device, 1)
    copies = measure_copies(replay, rollout, rows, each, size, job)
    return copies + measure_fed(half, replay, rollout, size, job)


def measure_copies(
    replay: Replay, rollout: Rollout, rows: int, each: int, size: int, job: Job
) -> list[Figure]:
    """Storing rollouts beside one copy of as many bytes, and drawing batches beside gathering as many rows.

    Args:
        replay: full.
        rollout: stored again and again.
        rows: capacity of the replay.
        each: bytes of a transition.
        size: batch size.
        job: the section's task.
    """
    columns, stored = math.ceil(each / 4), rollout.num_transitions
    table = torch.zeros(rows, columns, device=job.device)
    arrived, drawn = torch.zeros(stored, columns), torch.zeros(size, columns, device=job.device)
    offset = 0

    def copy() -> None:
        nonlocal offset
        offset = offset + stored if offset + 2 * stored <= rows else 0
        table[offset : offset + stored].copy_(arrived)

    def gather() -> None:
        torch.index_select(table, 0, torch.randint(rows, (size,), device=job.device), out=drawn)

    ways = {
        "copy": timed(copy, stored, job.device, repeated),
        "store": timed(lambda: replay.add(rollout), stored, job.device, repeated),
        "gather": timed(gather, size, job.device, repeated),
        "draw": timed(lambda: replay.sample(size), size, job.device, repeated),
    }
    rates, unit = by_clock(in_turn(ways, job.seconds / 2, ROUNDS)), "transitions/s"
    return [
        paired(f"storing, {stored} at once", unit, rates["copy"], rates["store"], f"of {rows:,}"),
        paired(f"drawing, batch {size}", unit, rates["gather"], rates["draw"], f"{each:,} bytes each"),
    ]


def measure_fed(half: AutogradHalf, replay: Replay, rollout: Rollout, size: int, job: Job) -> list[Figure]:
    """Critic updates with drawing, storing or publishing between them, beside updates alone."""
    at_hand = replay.sample(size)  # in the replay's own memory, for which a CUDA graph is recorded
    for _ in range(WARM_UP_CALLS + 2 if job.device != "cpu" else 1):
        half.update(at_hand)
    download, owed, since_s = Download(torch.device(job.device)), 0.0, 0.0
    download.start(half.weights)

    def draw(passed_s: float) -> None:
        replay.sample(size)
        if replay.prioritized:
            replay.prioritize(half.priorities())

    def take_in(passed_s: float) -> None:
        nonlocal owed
        owed += INGESTED_PER_S * passed_s
        while owed > 0:
            replay.add(rollout)
            owed -= rollout.num_transitions

    def publish(passed_s: float) -> None:
        nonlocal since_s
        since_s += passed_s
        if since_s >= PUBLISH_INTERVAL_S and download.ready():
            download.array()
            download.start(half.weights)
            since_s = 0.0

    between: dict[str, tuple[str, Callable[[float], None]]] = {
        "drawing": ("its batches", draw),
        "storing": (f"{INGESTED_PER_S:,} transitions/s", take_in),
        "publishing": (f"every {1000 * PUBLISH_INTERVAL_S:.0f} ms", publish),
    }
    ways = {name: updates(half, at_hand, act, job.device) for name, (_, act) in between.items()}
    ways["alone"] = updates(half, at_hand, lambda passed_s: None, job.device)
    rates = by_clock(in_turn(ways, job.seconds / 2, ROUNDS))
    return [
        paired(f"updates, {name}", "updates/s", rates["alone"], rates[name], note)
        for name, (note, _) in between.items()
    ]


def updates(half: AutogradHalf, batch: Batch, between: Callable[[float], None], device: str) -> Way:
    """Updates of one batch; ``between`` is called before each with the seconds since its last call."""

    def way(turn_s: float) -> Rate:
        then_s = time.perf_counter()

        def step() -> None:
            nonlocal then_s
            now_s = time.perf_counter()
            between(now_s - then_s)
            then_s = now_s
            half.update(batch)

        return timed(step, 1, device, repeated)(turn_s)

    return way
