"""The two replays: whole transitions for a critic, observations alone for an actor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.frames import stacked_shape
from spreeze_zmq.replay.frame_ring import FrameRing
from spreeze_zmq.replay.returns import n_step_returns, next_observations
from spreeze_zmq.replay.ring import Column, Ring
from spreeze_zmq.rollout import Rollout


@dataclass(frozen=True)
class Batch:
    """Transitions drawn from a replay; views of its buffers, valid until its next ``sample``.

    Attributes:
        obs: ``[B, *obs_shape]`` in the dtype of the environment; of images ``[B, stack * channels, height,
            width]``.
        action: ``[B, *action_shape]`` in the environment's own units.
        reward: ``[B]`` float32, the discounted sum of up to ``n_step`` rewards.
        discount: ``[B]`` float32, gamma to the number of rewards summed; 0 after termination.
        next_obs: as ``obs``, the observation to bootstrap from.
        weight: ``[B]`` float32, each transition's weight in the loss; None if all are equal.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    next_obs: torch.Tensor
    weight: torch.Tensor | None = None

    def _replace(self, **fields: Any) -> Batch:
        """A copy with other values of some fields, as of a ``NamedTuple``."""
        return replace(self, **fields)


class ReplaySettings(Protocol):
    """The options of an algorithm that a replay needs; ``ReplayOptions`` of the algorithms has them.

    Attributes:
        replay_capacity: transitions kept.
        gamma: discount of one step.
        n_step: largest number of rewards summed.
        frame_stack: observations that the networks take at once; above 1 for uint8 only.
        prioritized: whether transitions are drawn by priority.
        priority_alpha: 0 draws uniformly, 1 in proportion to the errors.
        priority_beta: 1 corrects the whole bias of the drawing, 0 none.
    """

    replay_capacity: int
    gamma: float
    n_step: int
    frame_stack: int
    prioritized: bool
    priority_alpha: float
    priority_beta: float


class _RingReplay:
    """What both replays do with their ring."""

    prioritized = False

    def __init__(self, ring: Ring):
        self.ring = ring

    def __len__(self) -> int:
        return len(self.ring)

    def random_state(self) -> torch.Tensor:
        """The state of the sampling's generator, uint8."""
        return self.ring.random_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Set the sampling's generator to a state of ``random_state()``."""
        self.ring.set_random_state(state)

    def keep_in(self, descriptor: int) -> None:
        """Hold the transitions in memory that outlives this process (``kept_memory``), and recover those that
        an earlier process left there. A replay on a GPU stays where it is.
        """
        if self.ring.device.type == "cpu":
            self.ring.keep_in(descriptor)

    def save(self, folder: Path | str) -> None:
        """Write everything under ``folder``, npy without pickle."""
        self.ring.save(Path(folder))

    def load(self, folder: Path | str) -> None:
        """Continue from ``save``. Raises CheckpointError."""
        self.ring.load(Path(folder))


class Replay(_RingReplay):
    """Whole transitions with n-step returns, for a critic.

    Args:
        env: gives shapes and dtypes; observations keep the environment's dtype.
        options: the algorithm's options.
        device: the device of the transitions.
        seed: seed of the sampling.

    Raises:
        InputError: it does not fit in the memory that is free.
    """

    #: Bytes that a subclass keeps for each transition outside the ring.
    bytes_beside = 0

    def __init__(
        self, env: EnvironmentSpec, options: ReplaySettings, device: torch.device | str = "cpu", seed: int = 0
    ):
        self.gamma, self.n_step = options.gamma, options.n_step
        settings = {"gamma": self.gamma, "n_step": self.n_step}
        capacity, beside = options.replay_capacity, self.bytes_beside
        action_dtype = "int64" if env.action_kind == "discrete" else "float32"
        action = Column("action", action_dtype, tuple(env.action_shape))
        numbers = (Column("reward", "float32", ()), Column("discount", "float32", ()))
        ring: Ring
        if env.obs_dtype == "uint8":
            columns, stack = (action, *numbers), options.frame_stack
            ring = FrameRing(capacity, columns, env.obs_shape, stack, True, device, seed, beside, settings)
        else:
            obs, next_obs = (
                Column(name, env.obs_dtype, tuple(env.obs_shape)) for name in ("obs", "next_obs")
            )
            ring = Ring(capacity, (obs, action, next_obs, *numbers), device, seed, beside, settings)
        super().__init__(ring)

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` transitions of a rollout."""
        assert rollout.obs is not None
        assert rollout.action is not None
        assert rollout.reward is not None
        assert rollout.terminated is not None
        assert rollout.truncated is not None
        returns, discount, last = n_step_returns(
            rollout.reward, rollout.terminated, rollout.truncated, self.gamma, self.n_step
        )
        fields: dict[str, NDArray[Any]] = {"action": rollout.action, "reward": returns, "discount": discount}
        if isinstance(self.ring, FrameRing):
            self.ring.add(rollout, fields, last)
            return
        fields |= {"obs": rollout.obs[:-1], "next_obs": next_observations(rollout, last)}
        self.ring.write({name: array.reshape(-1, *array.shape[2:]) for name, array in fields.items()})

    def sample(self, batch_size: int) -> Batch:
        """``batch_size`` transitions drawn uniformly with replacement; valid until the next call."""
        return Batch(**self.ring.gather(batch_size))

    def prioritize(self, errors: torch.Tensor) -> None:
        """Set priorities from the errors ``[B]`` of the last batch; a uniform replay ignores them."""


class ObservationReplay(_RingReplay):
    """Observations alone, for an actor; arguments as for ``Replay``."""

    def __init__(
        self, env: EnvironmentSpec, options: ReplaySettings, device: torch.device | str = "cpu", seed: int = 0
    ):
        capacity, shape, stack = options.replay_capacity, tuple(env.obs_shape), options.frame_stack
        ring = Ring(capacity, (Column("obs", env.obs_dtype, shape),), device, seed)
        if stack > 1 or (env.obs_dtype == "uint8" and stacked_shape(shape, 1) != shape):
            ring = FrameRing(capacity, (), shape, stack, False, device, seed)
        super().__init__(ring)

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` observations that were acted on."""
        if isinstance(self.ring, FrameRing):
            self.ring.add(rollout, {}, None)
        else:
            self.ring.write({"obs": rollout.acted_on})

    def sample(self, batch_size: int) -> torch.Tensor:
        """``[B, *stacked_shape]`` drawn uniformly with replacement; valid until the next call."""
        return self.ring.gather(batch_size)["obs"]
