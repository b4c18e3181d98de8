"""One episode of a policy, played step by step for a viewer."""

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
        total: return so far.
        steps: number of steps so far.
    """

    stage: Stage
    policy: Policy
    seed: int
    total: float = 0.0
    steps: int = 0

    def moments(self) -> Iterator[None]:
        """Play, and yield before each step, when the state can be shown. The final state cannot be shown: the
        last step already begins the next episode.
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
