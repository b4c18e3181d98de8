"""Plays whole deterministic episodes with a policy, for the evaluator and ``spreeze eval``."""

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
        """The figure of merit of a policy."""
        return float(self.returns.mean())


@dataclass
class EvaluationBudget:
    """The CPU time that evaluations may cost: a share of the machine, accumulated between them.

    While the training return suggests that the run's goal is reached, ``URGENT`` evaluations are granted in
    advance, so that the run ends soon after it could. It does so when it reaches the goal, or has risen by
    what the last score lacked: without exploration noise a policy often scores more than in training.

    Attributes:
        cores: the share times the number of cores: CPU seconds earned per second.
        goal: the mean return that ends the run; None where none does.
        spent_s: CPU seconds spent so far.
        cost_s: CPU seconds of the last evaluation, the estimate for the next one.
    """

    URGENT: ClassVar[int] = 4

    cores: float
    goal: float | None = None
    spent_s: float = 0.0
    cost_s: float = 0.0
    _lacked: float | None = None
    _promising: float = math.inf

    def wait_s(self, elapsed_s: float, training_return: float | None) -> float:
        """Seconds until the next evaluation is affordable; 0 where it is.

        Args:
            elapsed_s: since the evaluator began.
            training_return: mean return of recent training episodes; None before the first.
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
        """Enter the CPU seconds and the mean return of an evaluation."""
        self.spent_s += cost_s
        self.cost_s = cost_s
        self._lacked = None if self.goal is None else self.goal - score


def play(envs: Any, policy: Policy, seed: int, go_on: Callable[[], bool] = lambda: True) -> Score | None:
    """Play one whole episode in each environment of a batch, with the mode of the policy's distribution.

    Args:
        envs: a vector environment of :func:`spreeze_zmq.envs.make`, with same-step autoreset.
        policy: acts.
        seed: environment ``i`` is reset with ``seed + i``.
        go_on: called after every step; False abandons the evaluation.

    Returns:
        The score; None if abandoned.
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
        if "failed" in info:  # an episode cut off by a failure of its environment is played again
            again = playing & info["failed"]
            returns[again], lengths[again] = 0.0, 0
            over &= ~info["failed"]
        playing &= ~over
        if not go_on():
            return None
    return Score(returns, lengths)
