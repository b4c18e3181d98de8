"""How the output of an acting network becomes actions in a box, and what every distribution has.

Outputs are rows ``[B, num_outputs]``; ``A`` is the number of action dimensions. A unit action has its bounds
scaled to [-1, 1]; without bounds it is the action itself. Log densities are those of unit actions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import nn
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
#: Unit actions are clamped this far inside [-1, 1] before atanh, which is infinite at the ends.
MARGIN = 1e-6


class Distribution(Protocol):
    """What a policy message needs; the classes here also have what losses need.

    Attributes:
        num_outputs: outputs of the acting network for one observation.
    """

    num_outputs: int

    def describe(self) -> dict[str, Any]:
        """The kind of distribution and its constants, for the ``distribution`` of a policy's description."""

    def arrays(self) -> dict[str, Floats]:
        """Arrays that travel with the parameters: ``action_low`` and ``action_high``, or none."""
        return {}


def described(distribution: Distribution) -> dict[str, Any]:
    """Its :meth:`Distribution.describe` in plain values: an option that moves is a tensor in a learner."""
    about = distribution.describe()
    return {name: value.item() if _is_number(value) else value for name, value in about.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray | np.generic) and value.ndim == 0


def check(
    distribution: Distribution, env: EnvironmentSpec, acts_in: tuple[str, ...], needs_bounds: bool = False
) -> None:
    """Raise InvalidEnvironment, with distributions that fit, unless this one gives the actions of ``env``."""
    fitting = "TanhNormal, Deterministic or Normal" if env.has_bounds else "Normal"
    if env.action_kind != "box":
        fitting = "Categorical or EpsilonGreedy" if env.action_kind == "discrete" else "Categorical"
    try:
        env.check_actions(type(distribution).__name__, acts_in, needs_bounds)
    except InvalidEnvironment as error:
        raise InvalidEnvironment(f"{error}; {fitting} could") from None


class _Box(Distribution):
    """The flat bounds of a box of actions, and the conversion of actions to unit actions."""

    def __init__(self, env: EnvironmentSpec, needs_bounds: bool) -> None:
        check(self, env, ("box",), needs_bounds)
        self.num_actions = math.prod(env.action_shape)
        self._bounds: dict[str, Floats] = {}
        low, high = -np.ones(self.num_actions, np.float32), np.ones(self.num_actions, np.float32)
        if env.action_low is not None and env.action_high is not None:
            low, high = np.array(env.action_low, np.float32), np.array(env.action_high, np.float32)
            self._bounds = {"action_low": low, "action_high": high}
        # Each bound is halved first, because the sum of the largest floats overflows.
        centre: Floats = np.reshape(high / 2 + low / 2, -1).astype(np.float32)
        half: Floats = np.reshape(high / 2 - low / 2, -1).astype(np.float32)
        self._host = centre, half
        self._scaled = bool((centre != 0.0).any() or (half != 1.0).any())
        self._on: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def arrays(self) -> dict[str, Floats]:
        """The bounds if there are any."""
        return {name: bound.copy() for name, bound in self._bounds.items()}

    def unit(self, action: Tensor) -> Tensor:
        """Unit actions ``[B, A]`` from actions ``[B, *action_shape]`` in the environment's units."""
        rows = action.reshape(-1, self.num_actions)
        if not self._scaled:
            return rows
        centre, half = self._scale(action.device)
        return (rows - centre) / half

    def _scale(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Centre and half width ``[A]`` of the bounds, copied to each device once."""
        if device not in self._on:
            centre, half = self._host
            self._on[device] = torch.from_numpy(centre).to(device), torch.from_numpy(half).to(device)
        return self._on[device]


class TanhNormal(_Box):
    """``tanh(u)`` with ``u`` normal (Haarnoja et al. 2018, arXiv 1812.05905, appendix C).

    Rows are ``[mean, raw]`` with ``log_std = low + (high - low) / 2 * (tanh(raw) + 1)``, whose gradient is
    never zero, as a clamp's is beyond its limits.

    Args:
        env: has a bounded box of actions.
        log_std_min: ``low``.
        log_std_max: ``high``.
    """

    def __init__(self, env: EnvironmentSpec, log_std_min: float, log_std_max: float) -> None:
        super().__init__(env, needs_bounds=True)
        self.num_outputs = 2 * self.num_actions
        self.log_std_min, self.log_std_max = log_std_min, log_std_max

    def describe(self) -> dict[str, Any]:
        limits = {"log_std_min": self.log_std_min, "log_std_max": self.log_std_max}
        return {"kind": "tanh_normal", "log_std": "tanh", **limits}

    def sample(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Unit actions ``[B, A]`` and their log densities ``[B]``, reparameterised."""
        rows = output.float()
        noise = self.noise(rows[:, : self.num_actions])
        return nn.squashed_normal(rows, noise, self.log_std_min, self.log_std_max)

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        """Log densities ``[B]`` of actions ``[B, *action_shape]`` in the environment's units."""
        mean, log_std = self._parts(output)
        u = self.unit(action).clamp(MARGIN - 1.0, 1.0 - MARGIN).atanh()
        return _normal_density((u - mean) * torch.exp(-log_std), log_std) - _log_squash(u)

    def mode(self, output: Tensor) -> Tensor:
        """The unit action ``[B, A]`` without noise."""
        return self._parts(output)[0].tanh()

    def noise(self, mean: Tensor) -> Tensor:
        """Standard normal numbers of the shape of ``mean``."""
        return torch.randn_like(mean)

    def _parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = output.float().chunk(2, 1)
        return mean, self.log_std_min + 0.5 * (self.log_std_max - self.log_std_min) * (raw.tanh() + 1.0)


class Normal(_Box):
    """A normal distribution of unit actions. Those beyond the bounds are clipped for the environment only.

    Rows are ``[mean, log_std]``, ``log_std`` clipped to ``[log_std_min, log_std_max]``.
    """

    def __init__(self, env: EnvironmentSpec, log_std_min: float = -20.0, log_std_max: float = 2.0) -> None:
        super().__init__(env, needs_bounds=False)
        self.num_outputs = 2 * self.num_actions
        self.log_std_min, self.log_std_max = log_std_min, log_std_max

    def describe(self) -> dict[str, Any]:
        return {"kind": "normal", "log_std_min": self.log_std_min, "log_std_max": self.log_std_max}

    def sample(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Unit actions ``[B, A]`` and their log densities ``[B]``, reparameterised."""
        mean, log_std = self._parts(output)
        noise = torch.randn_like(mean)
        return mean + log_std.exp() * noise, _normal_density(noise, log_std)

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        """Log densities ``[B]`` of actions ``[B, *action_shape]`` in the environment's units."""
        unit = self.unit(action).float()
        return nn.normal_log_prob(output.float(), unit, self.log_std_min, self.log_std_max)

    def entropy(self, output: Tensor) -> Tensor:
        """The entropy in nats, ``[B]``."""
        return (self._parts(output)[1] + (LOG_SQRT_2PI + 0.5)).sum(1)

    def _parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = output.float().chunk(2, 1)
        return mean, nn.clamped(log_std, self.log_std_min, self.log_std_max)


class Deterministic(_Box):
    """``tanh`` of each row ``[B, A]``; samplers add normal noise, of another size in each environment.

    Args:
        env: has a bounded box of actions.
        noise_min: least standard deviation, in unit actions; those of a run's environments are spread evenly
            from it ...
        noise_max: ... to this, the largest.
    """

    def __init__(self, env: EnvironmentSpec, noise_min: float, noise_max: float) -> None:
        super().__init__(env, needs_bounds=True)
        self.num_outputs = self.num_actions
        self.noise_min, self.noise_max = noise_min, noise_max

    def describe(self) -> dict[str, Any]:
        return {"kind": "deterministic", "noise_min": self.noise_min, "noise_max": self.noise_max}

    def mode(self, output: Tensor) -> Tensor:
        """The unit action ``[B, A]`` without noise."""
        return output.float().tanh()


def _normal_density(noise: Tensor, log_std: Tensor) -> Tensor:
    """Log density ``[B]`` of ``mean + exp(log_std) * noise``."""
    return (-0.5 * noise.square() - log_std - LOG_SQRT_2PI).sum(1)


def _log_squash(u: Tensor) -> Tensor:
    """``sum log(1 - tanh(u)^2)``, ``[B]``: the second term of equation 26, in a form that cannot overflow."""
    return (2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))).sum(1)
