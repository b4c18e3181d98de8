"""Measures the transitions/s of the critic half at growing batch sizes and numbers of threads.

A program that ``autoscale.sizing`` starts: it reads a plan as JSON from its input and writes the curves as
JSON to its output. The half and its replay are real and are thrown away; the transitions are random.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.autoscale.knee import climb, doublings, knee
from spreeze_zmq.autoscale.sizing import BATCH_SIZE
from spreeze_zmq.device import WARM_UP_CALLS
from spreeze_zmq.errors import InputError
from spreeze_zmq.learner.at_hand import NUM_ENVS, random_rollout, random_round
from spreeze_zmq.learner.setup import algorithm_of, replay_bytes
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, PART_OF
from spreeze_zmq.replay import MEMORY_SHARE, Minibatches, free_bytes, replay_of

#: The first batch size: smaller ones never train more.
SMALLEST = 64
#: Seconds of updates in one turn of one batch size. Six turns of 0.02 s found the same knee each time on a
#: machine whose speed drifts, where three of 0.04 s found one of two.
TURN_S = 0.02
#: Seconds after which no further measurement is begun, for batch sizes and for threads.
BATCH_BUDGET_S, THREADS_BUDGET_S = 2.5, 1.0
#: The same on a GPU: each new batch size records a CUDA graph, which takes time but is not in the rates.
CUDA_BUDGET_S = 10.0
#: Updates after which that graph is recorded.
CUDA_WARM_UP = WARM_UP_CALLS + 2
#: Upper bounds of the random replay, in transitions and bytes, and the steps of its rollouts.
ROWS, ROWS_BYTES, STEPS = 16_384, 1 << 26, 16
#: Transitions of the random round of an on-policy algorithm, at least.
ROUND = 512


class Trial:
    """A critic half to be measured, and a replay full of random transitions, or a round of them.

    Attributes:
        clock: returns seconds: CPU time for a single thread, which other processes do not disturb; wall time
            for several threads and for a GPU.
    """

    def __init__(self, plan: Plan):
        algorithm, options = algorithm_of(plan)
        device = torch.device(plan.components[CRITIC_LEARNER].options.get("device", "cpu"))
        env, part, stack = plan.environment, PART_OF[CRITIC_LEARNER], options.frame_stack
        self.device, self.options = device, options
        self.half: Any = algorithms.make(part, algorithm, options, env, str(device), 1)
        self.replay: Any = None
        if algorithm.on_policy():
            multiple = math.lcm(NUM_ENVS, options.batch_size)
            size = multiple * math.ceil(ROUND / multiple)
            self.round = random_round(env, size, str(device), stack, algorithm.memory_size(options))
            self.generator = torch.Generator(device).manual_seed(1)
            self._batches: Iterator[Any] = iter(())
        else:
            rows = min(ROWS, ROWS_BYTES * options.replay_capacity // replay_bytes(plan)[CRITIC_LEARNER])
            rows = max(STEPS, rows // STEPS * STEPS)
            small = dataclasses.replace(options, replay_capacity=rows, learning_starts=1)
            self.replay = replay_of(algorithm.fields_of(part, stack), env, small, device, 1)
            self.replay.add(random_rollout(env, STEPS, rows // (STEPS + stack), stack))
        self.clock: Callable[[], float] = time.perf_counter
        self._updates: dict[tuple[int, int], int] = {}
        self._batch_size = 0

    def rate(self, batch_size: int) -> float:
        """Transitions/s over one turn; warms up before: on a GPU at each change of size, else once a size."""
        if self.device.type == "cuda" and batch_size != self._batch_size:
            self.seconds(batch_size, CUDA_WARM_UP)
        self._batch_size = batch_size
        key = batch_size, torch.get_num_threads()
        if key not in self._updates:
            self.seconds(batch_size, 1)
            self._updates[key] = max(1, math.ceil(TURN_S / self.seconds(batch_size, 1)))
        updates = self._updates[key]
        return batch_size * updates / self.seconds(batch_size, updates)

    def seconds(self, batch_size: int, updates: int) -> float:
        """The seconds that a number of updates takes, on batches drawn as a learner draws them."""
        began_s = self.clock()
        for _ in range(updates):
            self.half.update(self._batch(batch_size))
            if self.replay is not None and self.replay.prioritized:
                self.replay.prioritize(self.half.priorities())
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.clock() - began_s

    def _batch(self, batch_size: int) -> Any:
        """A batch of the replay, or the next one of the round, whose epochs are repeated without end."""
        if self.replay is not None:
            return self.replay.sample(batch_size)
        if (batch := next(self._batches, None)) is None:
            batches = Minibatches(self.half.prepare(self.round), self.options.epochs, batch_size)
            self._batches = batches.drawn(self.generator)
            batch = next(self._batches)
        return batch


def largest_batch(plan: Plan, free: int) -> int:
    """The largest batch that fits beside the full replays of the learners on the critics' device.

    Args:
        plan: the run's.
        free: unused bytes on that device.

    Raises:
        InputError: not even a batch of ``SMALLEST`` fits.
    """
    algorithm, options = algorithm_of(plan)
    devices = {role: plan.components[role].options.get("device", "cpu") for role in plan.learning.learners}
    device, sizes = devices[CRITIC_LEARNER], replay_bytes(plan)
    sharing = [role for role in devices if devices[role] == device]
    replays = sum(sizes[role] for role in sharing)
    drawn = sizes[CRITIC_LEARNER] // options.replay_capacity
    drawn += algorithms.batch_bytes(algorithm, options, plan.environment)
    largest: int = int(MEMORY_SHARE * free - replays) // (len(sharing) * drawn)
    if largest < SMALLEST:
        raise InputError(
            f"{BATCH_SIZE}: {device} has {free / 1e9:.1f} GB free; the replays take "
            f"{replays / 1e9:.1f} GB of it, and a batch of {SMALLEST} does not fit beside them: lower "
            "algorithm.replay_capacity or the networks' sizes"
        )
    return largest


def measure(plan: Plan) -> dict[str, Any]:
    """Measure what ``plan.to_measure`` names, within a few seconds; returns the fields of ``sizing.Curves``.

    Raises:
        InputError: no batch fits into the memory.
    """
    threads = plan.components[CRITIC_LEARNER].threads
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as in a learner
    curve: dict[int, float] = {}
    batch_size, ended = plan.learning.batch_size, "last"
    device = torch.device(plan.components[CRITIC_LEARNER].options.get("device", "cpu"))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    largest = largest_batch(plan, free_bytes(device)) if BATCH_SIZE in plan.to_measure else 0
    trial = Trial(plan)  # allocates memory, and so comes after free_bytes
    if largest:
        curve, ended = measure_batches(trial, largest, threads)
        batch_size = knee(curve)
    by_threads: dict[int, float] = {}
    if any(key.endswith(".threads") for key in plan.to_measure):
        numbers = sorted({*doublings(1, threads), threads})
        trial.clock = time.perf_counter
        left = within(THREADS_BUDGET_S, trial.clock)

        def rate(number: int) -> float:
            torch.set_num_threads(number)
            return trial.rate(batch_size)

        by_threads, _ = climb(numbers, rate, left)
    return {"batch_sizes": curve, "ended": ended, "threads": by_threads}


def measure_batches(trial: Trial, largest: int, threads: int) -> tuple[dict[int, float], str]:
    """The curve of batch sizes up to ``largest``, the memory's limit, and why it ends."""
    wanted = max(SMALLEST, min(trial.options.max_batch_size, trial.options.replay_capacity))
    if trial.device.type == "cpu" and threads == 1:
        trial.clock = time.process_time
    budget_s = CUDA_BUDGET_S if trial.device.type == "cuda" else BATCH_BUDGET_S
    sizes = list(doublings(SMALLEST, min(wanted, largest)))
    curve, ended = climb(sizes, trial.rate, within(budget_s, trial.clock))
    return curve, "memory" if ended == "last" and largest < wanted else ended


def within(budget_s: float, clock: Callable[[], float]) -> Callable[[], bool]:
    """A function that is true until ``budget_s`` have passed."""
    end_s = clock() + budget_s
    return lambda: clock() < end_s


def main() -> int:
    """Measure for the plan on standard input; returns the exit code."""
    try:
        print(json.dumps(measure(Plan.from_json(sys.stdin.read()))))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
