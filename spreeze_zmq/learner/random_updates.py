"""Updates of a throw-away half on random transitions: what they cost on this machine."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from spreeze_zmq.device import WARM_UP_CALLS
from spreeze_zmq.learner.random_rollout import random_rollout
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.replay import ObservationReplay, transition_replay

STEPS = 16
#: Updates after which a GPU's graph is recorded.
CUDA_WARM_UP = WARM_UP_CALLS + 2


class RandomUpdates:
    """A half of the run's algorithm and a replay full of random transitions.

    Args:
        plan: of the run.
        role: ``critic_learner`` or ``actor_learner``.
        device: as torch names it.
        rows: transitions in the replay.
    """

    def __init__(self, plan: Plan, role: str, device: torch.device, rows: int) -> None:
        algorithm, options = algorithm_of(plan)
        small = dataclasses.replace(options, replay_capacity=rows, learning_starts=1)
        self.device, self.options = device, options
        self.half: Any
        self.replay: Any
        if role == "critic_learner":
            self.half = algorithm.make_critic(options, plan.environment, str(device), 1)
            self.replay = transition_replay(plan.environment, small, device, 1)
        else:
            self.half = algorithm.make_actor(options, plan.environment, str(device), 1)
            self.replay = ObservationReplay.for_environment(plan.environment, small, device, 1)
        self.prioritized = role == "critic_learner" and self.replay.prioritized
        self.replay.add(random_rollout(plan.environment, STEPS, rows // STEPS))

    def update(self, batch_size: int, updates: int) -> None:
        """So many updates, drawn from the replay as a learner draws them; done when this returns."""
        for _ in range(updates):
            self.half.update(self.replay.sample(batch_size))
            if self.prioritized:
                self.replay.prioritize(self.half.priorities())
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
