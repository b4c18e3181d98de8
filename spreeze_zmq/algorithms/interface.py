"""What learners know of an algorithm: two halves, each a pure function over its state and a batch.

A half has no socket, file or clock. It draws its random numbers from a generator of its own, which is part of
its state, so that a run goes on from a checkpoint exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import InvalidEnvironment

if TYPE_CHECKING:
    import torch

Parameters = NDArray[np.float32]


class Environment(Protocol):
    """What an algorithm must know of the environment; ``spreeze_zmq.envs.EnvironmentSpec`` fits."""

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Of one observation."""

    @property
    def obs_dtype(self) -> str:
        """``"float32"`` or ``"uint8"``."""

    @property
    def action_kind(self) -> str:
        """``"box"`` or ``"discrete"``."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action."""

    @property
    def action_low(self) -> NDArray[np.float32] | None:
        """``action_shape``; None for discrete actions."""

    @property
    def action_high(self) -> NDArray[np.float32] | None:
        """``action_shape``; None for discrete actions."""


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


class CriticHalf(Protocol):
    """The half that learns values."""

    num_updates: int

    @property
    def gradient(self) -> torch.Tensor:
        """Flat float32 ``[P]``, as ``backward`` left it and ``step`` takes it; the half's own memory."""

    @property
    def weights(self) -> torch.Tensor:
        """Flat float32 ``[P]`` on the device: what ``parameters()`` is copied from."""

    def load_policy(self, arrays: Mapping[str, Parameters], extras: Mapping[str, float]) -> None:
        """Take a published policy: the arrays and the ``extras`` of its message."""

    def update(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """One gradient step; 0-d float32 metrics on the device, to be read before the next one."""

    def backward(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """The first half of ``update``: fill ``gradient`` and move nothing, so that it can be averaged."""

    def step(self) -> None:
        """The second half of ``update``: move by ``gradient``."""

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Go on with other values of the options ``learning_rate`` and ``tau``."""

    def reseed(self, seed: int) -> None:
        """Draw noise from another seed from here on; the weights stay."""

    def priorities(self) -> torch.Tensor:
        """``[B]``, how far the last update's transitions were from their targets; never negative."""

    def parameters(self) -> Parameters:
        """A fresh flat copy ``[P]`` of what the other half needs."""

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from: tensors and plain numbers only."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""


class ActorHalf(Protocol):
    """The half that learns the policy."""

    num_updates: int

    @property
    def weights(self) -> torch.Tensor:
        """Flat float32 on the device: all that ``policy_arrays()`` and ``extras()`` are copied from."""

    def load_critic(self, parameters: Parameters) -> None:
        """Take the flat parameters ``[P]`` of published critics."""

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Go on with another ``learning_rate``."""

    def observe(self, obs: NDArray[Any]) -> None:
        """Take observations ``[M, *obs_shape]`` that arrived into any statistics of them."""

    def update(self, obs: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """One gradient step on observations ``[B, *obs_shape]``; 0-d float32 metrics, as the critic's."""

    def parameters(self) -> Parameters:
        """A fresh flat copy ``[P]`` of the policy, packed as ``description()`` says."""

    def description(self) -> dict[str, Any]:
        """The policy's network in plain values, enough for anyone to evaluate it."""

    def policy_arrays(self, weights: Parameters | None = None) -> dict[str, NDArray[np.float32]]:
        """Every array of a policy message: parameters, action bounds, any observation normaliser.

        Args:
            weights: a copy of ``weights`` that is on the host already; else this waits for the device.
        """

    def extras(self, weights: Parameters | None = None) -> dict[str, float]:
        """Numbers that travel with the policy, such as the temperature; ``weights`` likewise."""

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from: tensors and plain numbers only."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""


@dataclass(frozen=True)
class Algorithm:
    """A pair of halves and what they need. Importing it costs no torch; making a half imports it.

    Attributes:
        name: as the topology names it.
        options: a frozen dataclass type, its fields declared with ``option``.
        action_kinds: the action spaces that it can act in, of ``"box"`` and ``"discrete"``.
        critic_fields: the rollout arrays that the critic-learner asks the samplers for.
        actor_fields: those that the actor-learner asks for.
        critic_maker: ``(options, env, device, seed) -> CriticHalf``.
        actor_maker: ``(options, env, device, seed) -> ActorHalf``.
        batch_bytes: ``(options, env) -> int``: memory that an update of either half takes for each transition
            of its batch, estimated from above.
    """

    name: str
    options: type[Any]
    action_kinds: tuple[str, ...]
    critic_fields: tuple[str, ...]
    actor_fields: tuple[str, ...]
    critic_maker: Callable[[Any, Environment, str, int], CriticHalf]
    actor_maker: Callable[[Any, Environment, str, int], ActorHalf]
    batch_bytes: Callable[[Any, Environment], int]

    def make_critic(self, options: Any, env: Environment, device: str, seed: int) -> CriticHalf:
        """The critic half, initialised from ``seed``. Raises InvalidEnvironment, InputError."""
        self.check(env)
        return self.critic_maker(options, env, device, seed)

    def make_actor(self, options: Any, env: Environment, device: str, seed: int) -> ActorHalf:
        """The actor half, initialised from ``seed``. Raises InvalidEnvironment, InputError."""
        self.check(env)
        return self.actor_maker(options, env, device, seed)

    def check(self, env: Environment) -> None:
        """Raise InvalidEnvironment where this algorithm cannot act in ``env``."""
        if env.action_kind not in self.action_kinds:
            raise InvalidEnvironment(
                f"{self.name} acts in {' or '.join(self.action_kinds)} action spaces, this environment's is "
                f"{env.action_kind}"
            )
        if env.action_kind == "box":
            low, high = env.action_low, env.action_high
            if low is None or high is None or not (np.isfinite(low).all() and np.isfinite(high).all()):
                raise InvalidEnvironment(
                    f"{self.name} scales its actions to finite bounds, this environment's are {low} to "
                    f"{high}; wrap it with gymnasium.wrappers.RescaleAction or give it bounds"
                )
            if not (low < high).all():
                raise InvalidEnvironment(f"an action bound is empty: low {low}, high {high}")
