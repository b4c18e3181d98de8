"""What learners know of an algorithm: one half for each learner, a pure function over its state and a batch.

A half has no socket, file or clock. It draws its random numbers from a generator of its own, which is part of
its state, so that a run goes on from a checkpoint exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.spec import EnvironmentSpec as Environment
from spreeze_zmq.errors import InvalidEnvironment
from spreeze_zmq.frames import stacked_shape

if TYPE_CHECKING:
    import torch

Parameters = NDArray[np.float32]

__all__ = ["Batch", "CriticHalf", "Environment", "Half", "Parameters", "PolicyHalf", "RoundHalf", "seen"]


def seen(env: Environment, options: Any) -> Environment:
    """The environment as networks see it: of images, ``frame_stack`` at once and channels first.

    Raises:
        InvalidEnvironment: what is to be stacked are no images.
    """
    if env.obs_dtype != "uint8":
        if options.frame_stack > 1:
            raise InvalidEnvironment(
                f"frame_stack = {options.frame_stack} is for images of uint8, this environment's "
                f"observations are {env.obs_dtype} of shape {list(env.obs_shape)}"
            )
        return env
    shape = stacked_shape(env.obs_shape, options.frame_stack)
    return env if shape == tuple(env.obs_shape) else replace(env, obs_shape=shape)


class Batch(Protocol):
    """Transitions to learn from; ``spreeze_zmq.replay.Batch`` fits."""

    @property
    def obs(self) -> torch.Tensor:
        """``[B, *obs_shape]``."""

    @property
    def action(self) -> torch.Tensor:
        """``[B, *action_shape]`` in the environment's own units."""

    @property
    def reward(self) -> torch.Tensor:
        """``[B]``, the discounted sum of up to ``n`` rewards."""

    @property
    def discount(self) -> torch.Tensor:
        """``[B]``, gamma to the number of rewards summed; 0 after termination."""

    @property
    def next_obs(self) -> torch.Tensor:
        """``[B, *obs_shape]``, the observation to bootstrap from."""

    @property
    def weight(self) -> torch.Tensor | None:
        """``[B]``, each transition's share in the loss; None where all are alike."""


class Half(Protocol):
    """What both halves can do.

    Attributes:
        num_updates: gradient steps taken.
        env_steps: transitions that the run has sampled, as far as the learner knows; for schedules.
    """

    num_updates: int
    env_steps: int

    @property
    def weights(self) -> torch.Tensor:
        """Flat float32 ``[P]`` on the device: all that a publication is copied from."""

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Go on with other values of the options that follow the batch size."""

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from: tensors and plain numbers only."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""


class CriticHalf(Half, Protocol):
    """The half that learns values."""

    def load_policy(self, arrays: Mapping[str, Parameters], extras: Mapping[str, float]) -> None:
        """Take a published policy: the arrays and the ``extras`` of its message. Raises WireError."""

    def update(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """One gradient step; 0-d float32 metrics on the device, to be read before the next one."""

    def priorities(self) -> torch.Tensor:
        """``[B]``, how far the last update's transitions were from their targets; never negative."""


class ActingHalf(Half, Protocol):
    """A half that holds the policy, and publishes it."""

    def observe(self, obs: NDArray[Any]) -> None:
        """Take observations ``[M, *obs_shape]`` that arrived into any statistics of them."""

    def description(self) -> dict[str, Any]:
        """The policy in plain values, enough for anyone to evaluate it."""

    def policy_arrays(self, weights: Parameters | None = None) -> dict[str, NDArray[np.float32]]:
        """Every array of a policy message: parameters, action bounds, any observation normaliser.

        Args:
            weights: a copy of ``weights`` that is on the host already; else this waits for the device.
        """

    def extras(self, weights: Parameters | None = None) -> dict[str, float]:
        """Numbers that travel with the policy, such as the temperature; ``weights`` likewise."""


class PolicyHalf(ActingHalf, Protocol):
    """The half that learns the policy against published critics."""

    def load_critic(self, parameters: Parameters) -> None:
        """Take the flat parameters ``[P]`` of published critics. Raises WireError."""

    def update(self, batch: Any) -> Mapping[str, torch.Tensor]:
        """One gradient step on observations ``[B, *obs_shape]``, or on a :class:`Batch` where the algorithm
        asks for more than observations; 0-d float32 metrics, as the critic's.
        """


class RoundHalf(ActingHalf, Protocol):
    """Either half of an algorithm that learns from whole rollouts."""

    def load_policy(self, arrays: Mapping[str, Parameters], extras: Mapping[str, float]) -> None:
        """Take a published policy: the arrays and the ``extras`` of its message. Raises WireError."""

    def load_critic(self, parameters: Parameters) -> None:
        """Take the flat parameters ``[P]`` of published critics. Raises WireError."""

    def prepare(self, rollouts: Any) -> dict[str, torch.Tensor]:
        """The transitions of a round, ``[T * N, ...]`` by name, with the targets of the losses among them."""

    def update(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """One gradient step on some of what :meth:`prepare` gave; 0-d float32 metrics."""
