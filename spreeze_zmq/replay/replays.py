"""The two replays: whole transitions for a critic, observations alone for an actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
        reward: ``[B]`` float32, the discounted sum of up to ``n`` rewards.
        discount: ``[B]`` float32, gamma to the number of rewards summed; 0 where the episode terminated.
        next_obs: likewise, the observation to bootstrap from.
        weight: ``[B]`` float32, each transition's share in the loss; None where all are alike.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    next_obs: torch.Tensor
    weight: torch.Tensor | None = None


class ReplaySettings(Protocol):
    """The options of an algorithm that say what is kept and how it is drawn: ``ReplayOptions`` has them."""

    @property
    def replay_capacity(self) -> int:
        """Transitions."""

    @property
    def gamma(self) -> float:
        """Discount of one step."""

    @property
    def n_step(self) -> int:
        """Rewards summed at most."""

    @property
    def frame_stack(self) -> int:
        """Observations that the networks take at once; above 1 of uint8 alone."""

    @property
    def prioritized(self) -> bool:
        """Whether transitions are drawn by their priority."""

    @property
    def priority_alpha(self) -> float:
        """0 draws them alike, 1 in proportion to their errors."""

    @property
    def priority_beta(self) -> float:
        """1 corrects the whole bias of the drawing, 0 none of it."""


class _Kept:
    """What both replays do with their ring; ``settings`` must be those of a saved replay to load it."""

    def __init__(self, ring: Ring, settings: Mapping[str, float]):
        self.ring = ring
        self._settings = dict(settings)

    def __len__(self) -> int:
        return len(self.ring)

    def random_state(self) -> torch.Tensor:
        """The state of the sampling, uint8."""
        return self.ring.random_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Draw the same batches again as after ``random_state()``."""
        self.ring.set_random_state(state)

    def keep_in(self, descriptor: int) -> None:
        """Hold the transitions in memory that outlives this process (``kept_memory``), and go on with those
        that are there. A replay on a GPU stays where it is.
        """
        if self.ring.device.type == "cpu":
            self.ring.keep_in(descriptor, self._settings)

    def save(self, folder: Path | str) -> None:
        """Write everything under ``folder``, npy without pickle."""
        self.ring.save(Path(folder), self._settings)

    def load(self, folder: Path | str) -> None:
        """Go on from ``save``. Raises CheckpointError."""
        self.ring.load(Path(folder), self._settings)


class Replay(_Kept):
    """Whole transitions with n-step returns, for a critic.

    Args:
        env: gives shapes and dtypes; observations are kept as they come.
        options: of the algorithm.
        device: of the transitions.
        seed: of the sampling.

    Raises:
        InputError: it does not fit in the memory that is free.
    """

    prioritized = False
    #: For each transition, beside it.
    bytes_beside = 0

    def __init__(
        self, env: EnvironmentSpec, options: ReplaySettings, device: torch.device | str = "cpu", seed: int = 0
    ):
        self.gamma, self.n_step = options.gamma, options.n_step
        capacity, beside = options.replay_capacity, self.bytes_beside
        action_dtype = "int64" if env.action_kind == "discrete" else "float32"
        action = Column("action", action_dtype, tuple(env.action_shape))
        numbers = (Column("reward", "float32", ()), Column("discount", "float32", ()))
        ring: Ring
        if env.obs_dtype == "uint8":
            columns, stack = (action, *numbers), options.frame_stack
            ring = FrameRing(capacity, columns, env.obs_shape, stack, True, device, seed, beside)
        else:
            obs, next_obs = (
                Column(name, env.obs_dtype, tuple(env.obs_shape)) for name in ("obs", "next_obs")
            )
            ring = Ring(capacity, (obs, action, next_obs, *numbers), device, seed, beside)
        super().__init__(ring, {"gamma": self.gamma, "n_step": self.n_step})

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
        self.ring.write({name: _rows(field) for name, field in fields.items()})

    def sample(self, batch_size: int) -> Batch:
        """Uniform with replacement; valid until the next call."""
        return Batch(**self.ring.gather(batch_size))

    def prioritize(self, errors: torch.Tensor) -> None:
        """Take the errors ``[B]`` of the batch drawn last; a uniform replay has no use for them."""


class ObservationReplay(_Kept):
    """Observations alone, for an actor; arguments as for ``Replay``."""

    prioritized = False

    def __init__(
        self, env: EnvironmentSpec, options: ReplaySettings, device: torch.device | str = "cpu", seed: int = 0
    ):
        capacity, shape, stack = options.replay_capacity, tuple(env.obs_shape), options.frame_stack
        ring = Ring(capacity, (Column("obs", env.obs_dtype, shape),), device, seed)
        if stack > 1 or (env.obs_dtype == "uint8" and stacked_shape(shape, 1) != shape):
            ring = FrameRing(capacity, (), shape, stack, False, device, seed)
        super().__init__(ring, {})

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` observations that were acted on."""
        if isinstance(self.ring, FrameRing):
            self.ring.add(rollout, {}, None)
        else:
            self.ring.write({"obs": rollout.acted_on})

    def sample(self, batch_size: int) -> torch.Tensor:
        """``[B, *stacked_shape]``, uniform with replacement; valid until the next call."""
        return self.ring.gather(batch_size)["obs"]


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    """``[T, N, ...]`` to ``[T * N, ...]``."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
