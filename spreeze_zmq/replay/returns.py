"""What the transitions of a rollout are worth: n-step returns and the observation to bootstrap from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import WireError
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


def next_observations(rollout: Rollout, ended: NDArray[np.bool_], last: NDArray[np.intp]) -> NDArray[Any]:
    """``[T, N, *obs_shape]``: what followed step ``last`` of each, an episode's true end included.

    Raises:
        WireError: ``final_obs``, where the rows of final observations are not those of the ended episodes.
    """
    assert rollout.obs is not None
    steps, envs = ended_at(rollout, ended)
    following = np.array(rollout.obs[1:])
    assert rollout.final_obs is not None
    following[steps, envs] = rollout.final_obs
    return following[last, np.arange(following.shape[1])]


def ended_at(rollout: Rollout, ended: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Step and environment of each of a rollout's final observations, ``[K]`` each.

    Raises:
        WireError: ``final_obs``, where they are not those of the ended episodes.
    """
    places = np.argwhere(ended)
    index, final = rollout.final_index, rollout.final_obs
    if index is None or final is None or len(final) != len(places) or not np.array_equal(places, index):
        raise WireError(
            "final_obs",
            f"rollout {rollout.sequence} of {rollout.sampler} ends {len(places)} episodes and its final "
            "observations are not theirs, in the order of time and then environment",
        )
    return places[:, 0], places[:, 1]
