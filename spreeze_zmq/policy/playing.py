"""The loop of acting and stepping: samplers, evaluations, films and the page play by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.policy.actor import Actions
from spreeze_zmq.policy.observations import FrameStack
from spreeze_zmq.policy.policy import Policy


@dataclass(slots=True)
class Played:
    """One step of a batch of environments.

    Attributes:
        obs: ``[N, *obs_shape]``, the first of the next episode where one has ended.
        reward: ``[N]`` float64.
        terminated: ``[N]`` bool.
        truncated: ``[N]`` bool.
        info: as the batch gives it.
        ended: ``[N]`` bool: an episode has ended, whole or not.
        failed: ``[N]`` bool: it ended because its environment failed; the step does not count.
    """

    obs: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: dict[str, Any]
    ended: NDArray[np.bool_]
    failed: NDArray[np.bool_]


def played(envs: Any, frames: FrameStack, act: Callable[[FrameStack], Actions]) -> Iterator[Played]:
    """Step a batch of environments, as long as the caller asks for another step.

    Args:
        envs: a vector environment from :func:`spreeze_zmq.envs.make`, with same-step autoreset.
        frames: the stack of the policy that acts, begun with the observations of their reset; later ones are
            cast to the dtype of these.
        act: called with ``frames`` before each step; returns the actions that the environments are given.
    """
    dtype, shape, none = frames.seen.dtype, envs.action_space.shape, np.zeros(envs.num_envs, np.bool_)
    while True:
        obs, reward, terminated, truncated, info = envs.step(act(frames).reshape(shape))
        obs, ended = obs.astype(dtype, copy=False), terminated | truncated
        frames.add(obs, ended)
        yield Played(obs, reward, terminated, truncated, info, ended, info.get("failed", none))


def without_noise(policy: Policy) -> Callable[[FrameStack], Actions]:
    """How a policy acts where it is judged or shown: ``act`` of :func:`played`, by the mode."""
    return lambda frames: policy.env_action(policy.mode(frames.seen, frames.memory))
