"""What learners know of an algorithm: one half for each learner, a pure function over its state and a batch.

A half has no socket, file or clock. It draws its random numbers from a generator of its own, which is part of
its state, so that a run goes on from a checkpoint exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.spec import EnvironmentSpec as Environment
from spreeze_zmq.errors import InvalidEnvironment
from spreeze_zmq.frames import stacked_shape
from spreeze_zmq.schema import suggestion

if TYPE_CHECKING:
    import torch

Parameters = NDArray[np.float32]

__all__ = ["ActingHalf", "Environment", "Fields", "Half", "Parameters", "seen"]


class Fields(SimpleNamespace):
    """A batch as a loss sees it: tensors by name, and an error that names the nearest one."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a batch has no {name!r}; {suggestion(name, vars(self))}")


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
