"""One episode of a policy, played step by step for a viewer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spreeze_zmq.evaluation.stage import Stage
from spreeze_zmq.policy import Policy, played, without_noise


@dataclass
class Episode:
    """One deterministic episode.

    Attributes:
        total: return so far.
        steps: number of steps so far.
        broken: whether the environment failed before its end; the failure is logged.
    """

    stage: Stage
    policy: Policy
    seed: int
    total: float = 0.0
    steps: int = 0
    broken: bool = False

    def moments(self) -> Iterator[None]:
        """Play, and yield before each step, when the state can be shown. The final state cannot be shown: the
        last step already begins the next episode.
        """
        frames = self.policy.frame_stack()
        frames.begin(self.stage.env.reset(seed=self.seed)[0])
        yield
        for step in played(self.stage.env, frames, without_noise(self.policy)):
            self.broken = bool(step.failed[0])
            if self.broken:
                return
            self.total, self.steps = self.total + float(step.reward[0]), self.steps + 1
            if step.ended[0]:
                return
            yield

    def said(self) -> str:
        """Its return and length, in words."""
        if self.broken:
            return f"broken after {self.steps} steps: the environment failed"
        return f"return {self.total:.2f}, {self.steps} steps"
