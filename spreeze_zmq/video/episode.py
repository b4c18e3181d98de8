"""One episode by a policy, step by step, for a viewer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spreeze_zmq.page.stage import Stage
from spreeze_zmq.policy import Policy


@dataclass
class Episode:
    """One deterministic episode.

    Attributes:
        total: the return so far.
        steps: steps so far.
    """

    stage: Stage
    policy: Policy
    seed: int
    total: float = 0.0
    steps: int = 0

    def moments(self) -> Iterator[None]:
        """Play; each moment that can be looked at is yielded. The last one is gone with the step that leads
        to it, since the environment begins the next episode in it.
        """
        env, policy = self.stage.env, self.policy
        obs, _ = env.reset(seed=self.seed)
        frames = policy.frame_stack()
        frames.begin(obs)
        over = np.zeros(1, np.bool_)
        while not over[0]:
            yield
            action = policy.env_action(policy.mode(frames.seen, frames.memory)).reshape(
                env.action_space.shape
            )
            obs, reward, terminated, truncated, _ = env.step(action)
            over = terminated | truncated
            frames.add(obs, over)
            self.total, self.steps = self.total + float(reward[0]), self.steps + 1
