"""From an environment's observations to a network's rows, frame stacks and then scaling; and the loop of
acting and stepping, by which samplers, evaluations, films and the page play.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import StateNotKept, WireError
from spreeze_zmq.base.frames import channels_first
from spreeze_zmq.policy.actor import Actions, Floats
from spreeze_zmq.policy.description import count, counts, number

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv
    from spreeze_zmq.policy.policy import Policy


class FrameStack:
    """The newest observations of each environment of a batch, and a recurrent policy's memory.

    Args:
        stack: observations that the policy takes at once; an episode's first one fills the whole stack.
        channels_last: whether the environment's images are ``[height, width, channels]``.
        memory_size: numbers of recurrent state per environment; 0 for none.

    Attributes:
        memory: ``[N, memory_size]`` float32, which the policy overwrites at each step.
        action_mask: ``[N, A]`` bool, the actions that are legal now; None where the environment says nothing.
    """

    def __init__(self, stack: int = 1, channels_last: bool = False, memory_size: int = 0) -> None:
        self.stack = stack
        self.memory = np.zeros((0, memory_size), np.float32)
        self.action_mask: NDArray[np.bool_] | None = None
        self._channels_last = channels_last
        self._frames: NDArray[Any] = np.empty((0, stack))  # [N, stack, ...], channels first

    @classmethod
    def described(cls, observation: Mapping[str, Any], memory_size: int = 0) -> Self:
        """The stack that the table ``description.observation`` asks for. Raises ValueError."""
        stack = count(observation, "stack") if "stack" in observation else 1
        return cls(stack, bool(observation.get("channels_last", False)), memory_size)

    def begin(self, obs: NDArray[Any], action_mask: NDArray[np.bool_] | None = None) -> None:
        """Begin an episode in every environment with ``obs`` ``[N, *obs_shape]``."""
        self.action_mask = action_mask
        self.memory = np.zeros((len(obs), self.memory.shape[1]), np.float32)
        frames = self.in_order(obs)
        self._frames = np.repeat(frames[:, None], self.stack, 1) if self.stack > 1 else frames[:, None]

    def add(
        self, obs: NDArray[Any], ended: NDArray[np.bool_], action_mask: NDArray[np.bool_] | None = None
    ) -> None:
        """Append a step's ``obs`` ``[N, *obs_shape]``; where the last episode has ``ended`` ``[N]``, it
        begins the next one.
        """
        self.action_mask = action_mask
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
        """``[N, ...]``: the policy's next input; valid until the next call."""
        return self._frames[:, 0] if self.stack == 1 else self._frames.reshape(len(self._frames), -1)

    def history(self) -> NDArray[Any]:
        """``[stack - 1, N, *obs_shape]``: the observations before the newest ones; a copy."""
        before = np.moveaxis(self._frames[:, :-1], 1, 0)
        return np.array(np.moveaxis(before, -3, -1) if self._channels_last else before, order="C")

    def get_state(self) -> dict[str, NDArray[Any]]:
        """What the next inputs follow from, between two steps."""
        return {"memory": self.memory.copy(), "frames": self._frames.copy()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from :meth:`get_state`, after :meth:`begin`. Raises StateNotKept where it does not fit."""
        now = self.get_state()
        if any(state[name].shape != array.shape for name, array in now.items()):
            raise StateNotKept("its frames, or what the policy remembers, are of another policy")
        self.memory[:], self._frames = state["memory"], state["frames"].astype(now["frames"].dtype)

    def in_order(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Observations ``[..., *obs_shape]`` with the channels of images first; may be a view."""
        return channels_first(obs) if self._channels_last else obs


class ObservationScaling:
    """Observations of any shape and dtype, or stacks of them, to float32 rows, normalised where the
    description asks for it. They are rounded to float32 first, as learners are sent them.

    Attributes:
        shape: of one observation of the environment.
        size: numbers in a row.
        normalize: whether rows are normalised.
        clip: normalised numbers are clipped to -clip to clip.
        mean: ``[size]``, subtracted.
        std: ``[size]``, divided by.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Mapping[str, Floats]):
        self.shape = counts(about, "shape")
        stack = FrameStack.described(about).stack
        self.size = stack * math.prod(self.shape)
        self._channels_last = stack == 1 and bool(about.get("channels_last", False))
        self._takes = "observations" if stack == 1 else f"stacks of {stack} observations"
        self.normalize = bool(about["normalize"])
        if self.normalize:
            self.clip = np.float32(number(about, "clip"))
        self.adopt(arrays)

    def adopt(self, arrays: Mapping[str, Floats]) -> None:
        """Use these statistics from now on. Raises KeyError or ValueError where they do not fit."""
        if self.normalize:
            self.mean = arrays["observation_mean"].reshape(self.size)
            self.std = arrays["observation_std"].reshape(self.size)
            if not (self.std > 0).all():
                raise ValueError("observation_std must be positive")

    def __call__(self, obs: NDArray[Any]) -> Floats:
        """``[N, *shape]``, images too as the environment gives them, or the output of a :class:`FrameStack`,
        to ``[N, size]``; may return the caller's own memory.

        Raises:
            WireError: ``bad_policy``, where the observations are of another size.
        """
        if obs.size != len(obs) * self.size:
            raise WireError(
                "bad_policy",
                f"the policy takes {self._takes} of shape {list(self.shape)}, they are {list(obs.shape[1:])}",
            )
        if self._channels_last and obs.shape[1:] == self.shape:
            obs = channels_first(obs)
        rows = obs.reshape(len(obs), self.size)
        if not self.normalize:
            return rows.astype(np.float32, copy=False)
        scaled: Floats = np.subtract(rows, self.mean, dtype=np.float32)
        with np.errstate(over="ignore"):  # beyond float32 is beyond the clip
            scaled /= self.std
        np.clip(scaled, -self.clip, self.clip, out=scaled)
        return scaled


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


def played(envs: BatchedEnv, frames: FrameStack, act: Callable[[FrameStack], Actions]) -> Iterator[Played]:
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
        frames.add(obs, ended, info.get("action_mask"))
        yield Played(obs, reward, terminated, truncated, info, ended, info.get("failed", none))


def without_noise(policy: Policy) -> Callable[[FrameStack], Actions]:
    """How a policy acts where it is judged or shown: ``act`` of :func:`played`, by the mode."""
    return lambda frames: policy.env_action(policy.mode(frames.seen, frames.memory, frames.action_mask))


def with_noise(policy: Policy, rng: np.random.Generator) -> Callable[[FrameStack], Actions]:
    """How a policy acts where it explores: ``act`` of :func:`played`, as samplers do. With each stack that it
    is called with, its environments get places of their own, drawn from all that a run's have.
    """
    playing: FrameStack | None = None
    place: Floats = np.zeros(0, np.float32)

    def act(frames: FrameStack) -> Actions:
        nonlocal playing, place
        if frames is not playing:
            playing, place = frames, rng.random(len(frames.seen), np.float32)
        about: Any = {"place": place, "memory": frames.memory, "action_mask": frames.action_mask}
        return policy.env_action(policy.act(frames.seen, rng, **about)[0])

    return act
