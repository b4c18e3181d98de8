"""Measures the transitions/s of the critic half at growing batch sizes and numbers of threads.

A program that ``plan.sizing`` starts: it reads a plan as JSON from its input and writes the curves as
JSON to its output. The half and its replay are real and are thrown away; the transitions are random.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.algorithms.encoders import seen
from spreeze_zmq.base.aside import printing_aside
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.trust import make_importable, modules_folder
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.at_hand import random_replay, random_round, round_size
from spreeze_zmq.learner.setup import algorithm_of, own_replay_bytes, replay_bytes
from spreeze_zmq.nn.device import WARM_UP_CALLS, claim
from spreeze_zmq.plan.devices import device_of
from spreeze_zmq.plan.knee import climb, doublings, knee
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, PART_OF
from spreeze_zmq.plan.sizing import BATCH_SIZE
from spreeze_zmq.replay import MEMORY_SHARE, Minibatches, ObservationReplay, Replay, free_bytes

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


class Rehearsal:
    """A critic half to be measured, and a replay full of random transitions, or a round of them.

    Attributes:
        clock: returns seconds: CPU time for a single thread, which other processes do not disturb; wall time
            for several threads and for a GPU.
    """

    def __init__(self, plan: Plan):
        algorithm, self.options = algorithm_of(plan)
        options, env, part = self.options, plan.environment, PART_OF[CRITIC_LEARNER]
        device: str = plan.components[CRITIC_LEARNER].options.get("device", "cpu")
        self.device, self.clock = torch.device(device), time.perf_counter
        self.half = algorithms.make(part, algorithm, options, env, device, 1)
        self.replay: Replay | ObservationReplay | None = None
        if algorithm.on_policy():
            self._batches = self._of_rounds(env, algorithm.memory_size(options))
        else:
            rows = min(ROWS, ROWS_BYTES * options.replay_capacity // own_replay_bytes(plan)[CRITIC_LEARNER])
            num_envs = max(1, rows // (STEPS + options.frame_stack))
            fields = algorithm.kept_fields(part, options)
            live = self.half.algorithm.options  # no schedules but their numbers
            self.replay = random_replay(fields, env, live, device, STEPS, num_envs)
        self._updates: dict[tuple[int, int], int] = {}
        self._batch_size = 0

    def _of_rounds(self, env: EnvironmentSpec, memory_size: int) -> Iterator[Any]:
        """The batches of a random round, whose epochs are repeated without end."""
        options, device = self.options, str(self.device)
        size = round_size(options.batch_size)
        made = random_round(env, size, device, options.frame_stack, memory_size)
        generator = torch.Generator(device).manual_seed(1)
        while True:
            fields = self.half.prepare(made)
            yield from Minibatches(fields, options.epochs, options.batch_size).drawn(generator)

    def rate(self, batch_size: int) -> float:
        """Transitions/s over one turn; warms up before: on a GPU at each change of size, else once a size."""
        if self.device.type == "cuda" and batch_size != self._batch_size:
            self.half.forget_recordings()  # the graph of the size before holds what its update takes
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
            self.half.update(next(self._batches) if self.replay is None else self.replay.sample(batch_size))
            if isinstance(self.replay, Replay) and self.replay.prioritized:
                self.replay.prioritize(self.half.priorities())
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.clock() - began_s


def largest_batch(plan: Plan, free: int) -> int:
    """The largest batch that fits beside the full replays of all groups' learners on the critics' device.

    Args:
        plan: the run's.
        free: unused bytes on that device.

    Raises:
        InputError: not even a batch of ``SMALLEST`` fits.
    """
    algorithm, options = algorithm_of(plan)
    device, sizes = device_of(plan, CRITIC_LEARNER), replay_bytes(plan)
    sharing = [
        role
        for number in range(plan.groups_here)
        for role in plan.learning.learners
        if device_of(plan, role, number) == device
    ]
    replays = sum(sizes[role] for role in sharing)
    drawn = own_replay_bytes(plan)[CRITIC_LEARNER] // options.replay_capacity
    drawn += batch_bytes(algorithm, options, plan.environment)
    largest: int = int(MEMORY_SHARE * free - replays) // (len(sharing) * drawn)
    if largest < SMALLEST:
        raise InputError(
            f"{BATCH_SIZE}: {device} has {free / 1e6:,.1f} MB free; the replays take "
            f"{replays / 1e6:,.1f} MB of it, and a batch of {SMALLEST} does not fit beside them: lower "
            "algorithm.replay_capacity or the networks' sizes"
        )
    return largest


def batch_bytes(kind: type[Algorithm], options: Any, env: EnvironmentSpec) -> int:
    """An upper estimate of the bytes that an update takes for each transition of its batch.

    It counts what every layer keeps in the forward pass and makes in the backward pass, for all networks and
    targets; a tape keeps all of this at once. SAC with layer norm, SiLU and C51 in torch's layers took 81,000
    bytes where this gives 109,000.
    """
    env = seen(env, options)
    networks = kind(options, env).networks()
    modules = {**networks.critic, **networks.policy, **networks.targets}.values()
    weights = [tensor for module in modules for tensor in module.parameters() if tensor.dim() > 1]
    # All outputs of an ensemble's weights [E, outputs, inputs] count.
    widths = [tensor.shape[:2].numel() if tensor.dim() == 3 else tensor.shape[0] for tensor in weights]
    return 4 * (9 * sum(widths) + 8 * math.prod(env.obs_shape))


def measure(plan: Plan) -> dict[str, Any]:
    """Measure what ``plan.to_measure`` names, within a few seconds; returns the fields of ``sizing.Curves``.

    Raises:
        InputError: no batch fits into the memory, or torch cannot use the device.
    """
    learner = plan.components[CRITIC_LEARNER]
    device, threads = torch.device(learner.options.get("device", "cpu")), learner.threads
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as in a learner
    claim(str(device), f"components.{CRITIC_LEARNER}.device")
    free = free_bytes(device)  # before the trial allocates memory
    largest = largest_batch(plan, free) if BATCH_SIZE in plan.to_measure else 0
    trial, curve, ended = Rehearsal(plan), dict[int, float](), "last"
    if largest:
        if device.type == "cpu" and threads == 1:
            trial.clock = time.process_time
        wanted = max(SMALLEST, min(trial.options.max_batch_size, trial.options.replay_capacity))
        left = within(CUDA_BUDGET_S if device.type == "cuda" else BATCH_BUDGET_S, trial.clock)
        curve, ended = climb(list(doublings(SMALLEST, min(wanted, largest))), trial.rate, left)
        ended = "memory" if ended == "last" and largest < wanted else ended
    by_threads: dict[int, float] = {}
    if any(key.endswith(".threads") for key in plan.to_measure):
        trial.clock = time.perf_counter

        def rate(number: int) -> float:
            torch.set_num_threads(number)
            return trial.rate(knee(curve) if curve else plan.learning.batch_size)

        numbers = sorted({*doublings(1, threads), threads})
        by_threads, _ = climb(numbers, rate, within(THREADS_BUDGET_S, trial.clock))
    return {"batch_sizes": curve, "ended": ended, "threads": by_threads}


def within(budget_s: float, clock: Callable[[], float]) -> Callable[[], bool]:
    """A function that is true until ``budget_s`` have passed."""
    end_s = clock() + budget_s
    return lambda: clock() < end_s


def main() -> int:
    """Measure for the plan on standard input; returns the exit code. An error of the input is written to the
    output in place of the curves.
    """
    try:
        plan = Plan.from_json(sys.stdin.read())
        make_importable(modules_folder(plan.topology_file))
        with printing_aside():
            curves = measure(plan)
        print(json.dumps(curves))
    except InputError as error:
        print(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
