"""Playing whole deterministic episodes with a policy; the evaluator and ``spreeze eval`` score in the same
way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    while playing.any():
        obs, reward, terminated, truncated, _ = envs.step(policy.mode(obs))
        returns += np.where(playing, reward, 0.0)
        lengths += playing
        playing &= ~(terminated | truncated)
        if not go_on():
            return None
    return Score(returns, lengths)
