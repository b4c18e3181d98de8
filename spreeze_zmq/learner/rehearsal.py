"""What updates cost on this machine: some on random transitions, of a half whose weights nobody asks for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.autoscale import tuning
from spreeze_zmq.component.component import Component
from spreeze_zmq.device import WARM_UP_CALLS
from spreeze_zmq.learner.random_rollout import random_rollout
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import PART_OF
from spreeze_zmq.replay import replay_of
from spreeze_zmq.topology.resolve import device_of

STEPS = 16
#: The replay of a learner that rehearses while it waits holds so few transitions: they must cost no time.
FEW_ROWS = 1_024
#: A learner whose samples take longer than this to be enough has time to rehearse.
WAITED_S = 0.25
#: Seconds of updates, and how many at least; those before them warm up, on a GPU while a graph is recorded.
MEASURED_S, LEAST_UPDATES, WARM_UP = 0.03, 2, 2
CUDA_WARM_UP = WARM_UP_CALLS + 2


class RandomUpdates:
    """A half of the run's algorithm and a replay full of random transitions.

    Args:
        plan: of the run.
        role: a learner.
        device: as torch names it.
        rows: transitions in the replay.
    """

    def __init__(self, plan: Plan, role: str, device: torch.device, rows: int) -> None:
        algorithm, options = algorithm_of(plan)
        small = dataclasses.replace(options, replay_capacity=rows, learning_starts=1)
        self.device, self.options = device, options
        self.half: Any
        self.replay: Any
        part = PART_OF[role]
        self.half = algorithms.make(part, algorithm, options, plan.environment, str(device), 1)
        stack = options.frame_stack
        self.replay = replay_of(algorithm.fields_of(part, stack), plan.environment, small, device, 1)
        self.prioritized = self.replay.prioritized
        self.replay.add(random_rollout(plan.environment, STEPS, rows // (STEPS + stack), stack))

    def update(self, batch_size: int, updates: int) -> None:
        """So many updates, drawn from the replay as a learner draws them; done when this returns."""
        for _ in range(updates):
            self.half.update(self.replay.sample(batch_size))
            if self.prioritized:
                self.replay.prioritize(self.half.priorities())
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Rehearsal:
    """Tells in reports what the updates of this learner cost, before it has made one: how many samplers it
    can use is then known while it still waits for the first samples. The run's own state is not touched.

    Args:
        component: the learner.

    Attributes:
        over: there is nothing more to rehearse, or to learn from it.
    """

    def __init__(self, component: Component) -> None:
        self.component = component
        self.told: Mapping[str, float] = {}
        self._waits_since_s: float | None = None
        self.over = not tuning.measures(component.plan)
        component.figures["rehearsal"] = lambda: self.told

    def due(self, *, sampled: bool) -> bool:
        """Whether to rehearse now; to be asked where no update is possible.

        Args:
            sampled: samples have come, so that enough of them will.
        """
        if self.over or not sampled:
            return False
        now_s = time.monotonic()
        self._waits_since_s = self._waits_since_s or now_s
        return now_s - self._waits_since_s >= WAITED_S

    def run(self) -> None:
        """Make the updates, and tell."""
        self.over = True
        component, plan = self.component, self.component.plan
        device = torch.device(device_of(component.options["device"], component.index))
        trial = RandomUpdates(plan, component.role, device, FEW_ROWS)
        one_thread = device.type == "cpu" and torch.get_num_threads() == 1
        size = plan.learning.batch_size
        self.told = cost(trial, size, time.thread_time if one_thread else time.perf_counter)
        component.send_report()


def cost(trial: RandomUpdates, batch_size: int, clock: Callable[[], float]) -> dict[str, float]:
    """``transitions`` that were trained on, the ``seconds`` of ``clock`` and the ``cpu_s`` that it took."""
    trial.update(batch_size, CUDA_WARM_UP if trial.device.type == "cuda" else WARM_UP)
    began_s, began_cpu_s, updates = clock(), time.process_time(), 0
    while updates < LEAST_UPDATES or clock() - began_s < MEASURED_S:
        trial.update(batch_size, 1)
        updates += 1
    seconds, cpu_s = clock() - began_s, time.process_time() - began_cpu_s
    return {"transitions": updates * batch_size, "seconds": seconds, "cpu_s": cpu_s}
