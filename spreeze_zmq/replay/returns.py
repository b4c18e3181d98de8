"""The n-step returns of a rollout's transitions, and the observations that they bootstrap from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.rollout import Rollout


def n_step_returns(
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    n_step: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.intp]]:
    """Sums of up to ``n_step`` discounted rewards, cut at the end of an episode and of the rollout.

    All arguments and results are ``[T, N]``. Returns the sums ``R_t = sum over k < m of gamma^k r_(t+k)``;
    the discounts ``gamma^m``, 0 after termination (Sutton and Barto 2018, equation 12.1 with ``m <= n_step``
    rewards before the cut); and the time ``t + m - 1`` of the last reward in each sum.
    """
    num_steps = len(reward)
    ended = terminated | truncated
    returns = np.array(reward, np.float32)
    last = np.broadcast_to(np.arange(num_steps)[:, None], reward.shape).copy()
    running = ~ended
    for k in range(1, min(n_step, num_steps)):
        running = running[:-1]  # drop the row whose k-th successor is beyond the rollout
        returns[:-k] += np.where(running, np.float32(gamma**k) * reward[k:], np.float32(0.0))
        last[:-k] += running
        running = running & ~ended[k:]
    steps = last - np.arange(num_steps)[:, None] + 1
    discount = np.power(np.float64(gamma), steps).astype(np.float32)
    discount[np.take_along_axis(terminated, last, 0)] = 0.0
    return returns, discount, last


def next_observations(rollout: Rollout, last: NDArray[np.intp]) -> NDArray[Any]:
    """``[T, N, *obs_shape]``: the observation after step ``last`` ``[T, N]``; after the last step of an
    episode, its true final observation.
    """
    assert rollout.obs is not None
    assert rollout.final_obs is not None
    following = np.array(rollout.obs[1:])
    following[ended_at(rollout)] = rollout.final_obs
    return following[last, np.arange(following.shape[1])]


def ended_at(rollout: Rollout) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Steps ``[K]`` and environments ``[K]`` of a rollout's final observations.

    A message whose final observations do not match its ended episodes is refused when it is decoded.
    """
    assert rollout.final_index is not None
    return rollout.final_index[:, 0], rollout.final_index[:, 1]
