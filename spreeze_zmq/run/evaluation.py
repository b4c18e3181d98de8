"""Playing whole deterministic episodes with a policy; the evaluator and ``spreeze eval`` score in the same
way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.policy import Policy


@dataclass(frozen=True)
class Score:
    """The episodes of one evaluation.

    Attributes:
        returns: ``[num_episodes]`` float64, undiscounted.
        lengths: ``[num_episodes]`` int64, steps.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean_return(self) -> float:
        """The figure that policies are compared by."""
        return float(self.returns.mean())


@dataclass
class EvaluationBudget:
    """The CPU time that evaluations may cost: a share of the machine, saved up while none is played.

    Where the returns of training say that the run's goal may be reached, it lends ``URGENT`` evaluations, so
    that a run ends soon after it could. They say so when they reach the goal, or have risen by what the last
    score lacked: without the noise of exploration a policy is often worth more than training shows.

    Attributes:
        cores: the share times the number of cores; CPU seconds earned in a second.
        goal: the mean return that ends the run; None where none does.
        spent_s: CPU seconds spent so far.
        cost_s: CPU seconds of the last evaluation, the guess for the next one.
    """

    URGENT: ClassVar[int] = 4

    cores: float
    goal: float | None = None
    spent_s: float = 0.0
    cost_s: float = 0.0
    _lacked: float | None = None
    _promising: float = math.inf

    def wait_s(self, elapsed_s: float, training_return: float | None) -> float:
        """Seconds until the next evaluation is paid for; 0 where it is.

        Args:
            elapsed_s: since the evaluator began.
            training_return: mean of the episodes that ended lately while samples were collected.
        """
        lent_s = self.URGENT * self.cost_s if self._urgent(training_return) else 0.0
        return max(0.0, (self.spent_s + self.cost_s - lent_s) / self.cores - elapsed_s)

    def _urgent(self, training_return: float | None) -> bool:
        if self.goal is None or training_return is None:
            return False
        if self._lacked is not None:
            self._promising, self._lacked = training_return + self._lacked, None
        return training_return >= min(self.goal, self._promising)

    def pay(self, cost_s: float, score: float) -> None:
        """Enter what an evaluation has cost, and its mean return."""
        self.spent_s += cost_s
        self.cost_s = cost_s
        self._lacked = None if self.goal is None else self.goal - score


def play(envs: Any, policy: Policy, seed: int, go_on: Callable[[], bool] = lambda: True) -> Score | None:
    """One whole episode in each environment of a batch, with the mode of the policy's distribution.

    Args:
        envs: a vector environment of :func:`spreeze_zmq.envs.make`, with same-step autoreset.
        policy: what acts.
        seed: of the starts; environment ``i`` is reset with ``seed + i``.
        go_on: asked after every step; the evaluation is given up when it says no.

    Returns:
        The score, or None where it was given up.
    """
    obs, _ = envs.reset(seed=seed)
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
    playing = np.ones(envs.num_envs, np.bool_)
    frames = policy.frame_stack()
    frames.begin(obs)
    while playing.any():
        action = policy.env_action(policy.mode(frames.seen)).reshape(envs.action_space.shape)
        obs, reward, terminated, truncated, info = envs.step(action)
        returns += np.where(playing, reward, 0.0)
        lengths += playing
        over = terminated | truncated
        frames.add(obs, over)
        if "failed" in info:  # what an environment's failure cut off is no score: it is played again
            again = playing & info["failed"]
            returns[again], lengths[again] = 0.0, 0
            over &= ~info["failed"]
        playing &= ~over
        if not go_on():
            return None
    return Score(returns, lengths)
