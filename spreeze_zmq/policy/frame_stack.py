"""What a policy has seen of each environment: the newest observations, and what it keeps of all before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.frames import channels_first
from spreeze_zmq.policy.description import count


class FrameStack:
    """What acts holds one of these for its batch of environments.

    Args:
        stack: observations that the policy takes at once; before an episode's first one stands that one
            again.
        channels_last: whether the environment's images are ``[height, width, channels]``.
        memory_size: numbers that a recurrent policy keeps.

    Attributes:
        memory: ``[N, memory_size]`` float32, which the policy writes anew at each step.
    """

    def __init__(self, stack: int = 1, channels_last: bool = False, memory_size: int = 0) -> None:
        self.stack = stack
        self.memory = np.zeros((0, memory_size), np.float32)
        self._channels_last = channels_last
        self._frames: NDArray[Any] = np.empty((0, stack))  # [N, stack, ...], channels first

    @classmethod
    def described(cls, observation: Mapping[str, Any], memory_size: int = 0) -> Self:
        """As the observation's part of a policy's description says. Raises ValueError."""
        stack = count(observation, "stack") if "stack" in observation else 1
        return cls(stack, bool(observation.get("channels_last", False)), memory_size)

    def begin(self, obs: NDArray[Any]) -> None:
        """An episode begins in every environment with ``obs`` ``[N, *obs_shape]``."""
        self.memory = np.zeros((len(obs), self.memory.shape[1]), np.float32)
        frames = self.in_order(obs)
        self._frames = np.repeat(frames[:, None], self.stack, 1) if self.stack > 1 else frames[:, None]

    def add(self, obs: NDArray[Any], ended: NDArray[np.bool_]) -> None:
        """Take what a step gave: ``obs`` ``[N, *obs_shape]`` follows, or begins the next episode where the
        last one has ``ended`` ``[N]``.
        """
        self.memory[ended] = 0.0
        frames = self.in_order(obs)
        if self.stack == 1:
            self._frames = frames[:, None]
            return
        self._frames[:, :-1] = self._frames[:, 1:]
        self._frames[:, -1] = frames
        self._frames[ended] = frames[ended][:, None]

    @property
    def seen(self) -> NDArray[Any]:
        """``[N, ...]``: what the policy takes next; holds until the next call."""
        return self._frames[:, 0] if self.stack == 1 else self._frames.reshape(len(self._frames), -1)

    def history(self) -> NDArray[Any]:
        """``[stack - 1, N, *obs_shape]``: what came before the newest observations; a copy."""
        before = np.moveaxis(self._frames[:, :-1], 1, 0)
        return np.array(np.moveaxis(before, -3, -1) if self._channels_last else before, order="C")

    def in_order(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Observations ``[..., *obs_shape]`` with the channels of images first; may be a view."""
        return channels_first(obs) if self._channels_last else obs
