"""What the transitions of a rollout are worth: n-step returns and the observation to bootstrap from."""

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
    """Sums of up to ``n_step`` discounted rewards that cross neither an episode's end nor the rollout's.

    All arguments and results are ``[T, N]``. Returns the sums ``R_t = sum over k < m of gamma^k r_(t+k)``;
    the discounts ``gamma^m``, 0 after termination (Sutton and Barto 2018, equation 12.1 cut short: ``m`` is
    the number of steps there were); and the time ``t + m - 1`` of the last reward in each sum.
    """
    num_steps = len(reward)
    ended = terminated | truncated
    returns = np.array(reward, np.float32)
    last = np.broadcast_to(np.arange(num_steps)[:, None], reward.shape).copy()
    running = ~ended
    for k in range(1, min(n_step, num_steps)):
        running = running[:-1]  # the row whose k-th successor lies beyond the rollout drops out
        returns[:-k] += np.where(running, np.float32(gamma**k) * reward[k:], np.float32(0.0))
        last[:-k] += running
        running = running & ~ended[k:]
    steps = last - np.arange(num_steps)[:, None] + 1
    discount = np.power(np.float64(gamma), steps).astype(np.float32)
    discount[np.take_along_axis(terminated, last, 0)] = 0.0
    return returns, discount, last


def next_observations(rollout: Rollout, last: NDArray[np.intp]) -> NDArray[Any]:
    """``[T, N, *obs_shape]``: what followed step ``last`` of each, an episode's true end included."""
    assert rollout.obs is not None
    assert rollout.final_obs is not None
    following = np.array(rollout.obs[1:])
    following[ended_at(rollout)] = rollout.final_obs
    return following[last, np.arange(following.shape[1])]


def ended_at(rollout: Rollout) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Step and environment of each of a rollout's final observations, ``[K]`` each. A message whose final
    observations are not those of its ended episodes is refused when it is decoded.
    """
    assert rollout.final_index is not None
    return rollout.final_index[:, 0], rollout.final_index[:, 1]
