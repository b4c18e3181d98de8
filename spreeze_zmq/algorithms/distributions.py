"""How the output of an acting network becomes actions: the torch side of ``spreeze_zmq.policy``.

Rows are ``[B, num_outputs]``. ``A`` is the number of action dimensions. A "unit action" is one whose box of
bounds is scaled to [-1, 1]; without bounds it is the action itself. Log densities are those of unit actions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.algorithms.lazy import nn, torch
from spreeze_zmq.envs.spec import EnvironmentSpec

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
#: Unit actions are brought this far inside [-1, 1] before the inverse of tanh, which is infinite at the ends.
MARGIN = 1e-6


class Distribution(Protocol):
    """What a policy message needs to know; the classes here add what losses need."""

    @property
    def num_outputs(self) -> int:
        """Of the acting network, for one observation."""

    def describe(self) -> dict[str, Any]:
        """In plain values, for the ``distribution`` of a policy's description."""

    def arrays(self) -> dict[str, Floats]:
        """Arrays that travel beside the parameters: ``action_low`` and ``action_high``, or none."""


class _Box:
    """The bounds of a box of actions, flat, and the way between the environment's units and unit actions."""

    def __init__(self, env: EnvironmentSpec) -> None:
        self.num_actions = math.prod(env.action_shape)
        self._bounds: dict[str, Floats] = {}
        low, high = -np.ones(self.num_actions, np.float32), np.ones(self.num_actions, np.float32)
        if env.action_low is not None and env.action_high is not None:
            low, high = np.array(env.action_low, np.float32), np.array(env.action_high, np.float32)
            self._bounds = {"action_low": low, "action_high": high}
        # Halved first: bounds near the largest float would overflow.
        centre: Floats = np.reshape(high / 2 + low / 2, -1).astype(np.float32)
        half: Floats = np.reshape(high / 2 - low / 2, -1).astype(np.float32)
        self._host = centre, half
        self._scaled = bool((centre != 0.0).any() or (half != 1.0).any())
        self._on: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def arrays(self) -> dict[str, Floats]:
        """The bounds, where there are some."""
        return {name: bound.copy() for name, bound in self._bounds.items()}

    def unit(self, action: Tensor) -> Tensor:
        """Actions ``[B, *action_shape]`` in the environment's units as unit actions ``[B, A]``."""
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

    Rows are ``[mean, raw]`` with ``log_std = low + (high - low) / 2 * (tanh(raw) + 1)``, whose gradient never
    dies as a clamp's does.

    Args:
        env: a bounded box of actions.
        log_std_min: ``low``.
        log_std_max: ``high``.
    """

    def __init__(self, env: EnvironmentSpec, log_std_min: float, log_std_max: float) -> None:
        super().__init__(env)
        self.num_outputs = 2 * self.num_actions
        self.log_std_min, self.log_std_max = log_std_min, log_std_max

    def describe(self) -> dict[str, Any]:
        """Its kind and the limits of the log standard deviation."""
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
    """A normal distribution of unit actions, which may leave the bounds; the environment gets them clipped.

    Rows are ``[mean, log_std]``, ``log_std`` clipped to ``[log_std_min, log_std_max]``.
    """

    def __init__(self, env: EnvironmentSpec, log_std_min: float = -20.0, log_std_max: float = 2.0) -> None:
        super().__init__(env)
        self.num_outputs = 2 * self.num_actions
        self.log_std_min, self.log_std_max = log_std_min, log_std_max

    def describe(self) -> dict[str, Any]:
        """Its kind and the limits of the log standard deviation."""
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
        """In nats, ``[B]``."""
        return (self._parts(output)[1] + (LOG_SQRT_2PI + 0.5)).sum(1)

    def _parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = output.float().chunk(2, 1)
        return mean, log_std.clamp(self.log_std_min, self.log_std_max)


class Deterministic(_Box):
    """``tanh`` of each row ``[B, A]``; samplers add noise whose deviation differs among environments.

    Args:
        env: a bounded box of actions.
        noise_min: standard deviation of the run's first environment, in unit actions.
        noise_max: that of its last one.
    """

    def __init__(self, env: EnvironmentSpec, noise_min: float, noise_max: float) -> None:
        super().__init__(env)
        self.num_outputs = self.num_actions
        self.noise_min, self.noise_max = noise_min, noise_max

    def describe(self) -> dict[str, Any]:
        """Its kind and the range of the noise."""
        return {"kind": "deterministic", "noise_min": self.noise_min, "noise_max": self.noise_max}

    def mode(self, output: Tensor) -> Tensor:
        """The unit action ``[B, A]`` without noise."""
        return output.float().tanh()


class Categorical:
    """One choice of each of ``env.action_sizes``; rows are their logits, side by side."""

    def __init__(self, env: EnvironmentSpec) -> None:
        self.sizes = tuple(env.action_sizes)
        self.num_outputs = sum(self.sizes)

    def describe(self) -> dict[str, Any]:
        """Its kind and the number of choices of each action."""
        return {"kind": "categorical", "sizes": list(self.sizes)}

    def arrays(self) -> dict[str, Floats]:
        """None."""
        return {}

    def sample(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, int64 ``[B]`` or ``[B, A]`` for several, and their log probabilities ``[B]``."""
        logits = self._log_probabilities(output)
        action = torch.cat([torch.multinomial(part.exp(), 1) for part in logits], 1)
        action = action[:, 0] if len(self.sizes) == 1 else action
        return action, self.log_prob(output, action)

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        """Log probabilities ``[B]`` of actions ``[B]`` or ``[B, A]``."""
        choices = action.reshape(-1, len(self.sizes)).long().unbind(1)
        parts = zip(self._log_probabilities(output), choices, strict=True)
        return torch.cat([part.gather(1, choice.unsqueeze(1)) for part, choice in parts], 1).sum(1)

    def entropy(self, output: Tensor) -> Tensor:
        """In nats, ``[B]``."""
        terms = [(part.exp() * part).sum(1, keepdim=True) for part in self._log_probabilities(output)]
        return -torch.cat(terms, 1).sum(1)

    def _log_probabilities(self, output: Tensor) -> list[Tensor]:
        return [part.log_softmax(1) for part in torch.split(output.float(), list(self.sizes), 1)]


class EpsilonGreedy:
    """The best action, or with a small probability any.

    Environment ``i`` of the run, at place ``p_i`` from 0 to 1, takes any action with the probability
    ``epsilon ** (1 + spread * p_i)`` (Horgan et al. 2018, arXiv 1803.00933, section 4.1, with spread 7).

    Args:
        env: gives the number of actions.
        epsilon: see above.
        spread: 0 for the same in all environments.
        atoms: above 1, rows are logits of that many returns for each action in turn.
        v_min: the lowest of these returns.
        v_max: the highest.
    """

    def __init__(
        self,
        env: EnvironmentSpec,
        epsilon: float,
        spread: float = 0.0,
        atoms: int = 1,
        v_min: float = 0.0,
        v_max: float = 1.0,
    ) -> None:
        assert env.num_actions is not None, "checked by Algorithm.check"
        self.num_actions, self.atoms = env.num_actions, atoms
        self.num_outputs = self.num_actions * atoms
        self.epsilon, self.spread = epsilon, spread
        self.v_min, self.v_max = v_min, v_max

    def describe(self) -> dict[str, Any]:
        """Its kind, its exploration and the meaning of its rows."""
        exploration = {"epsilon": self.epsilon, "spread": self.spread}
        atoms = {"atoms": self.atoms, "v_min": self.v_min, "v_max": self.v_max}
        return {"kind": "epsilon_greedy", "num_actions": self.num_actions, **exploration, **atoms}

    def arrays(self) -> dict[str, Floats]:
        """None."""
        return {}

    def values(self, output: Tensor) -> Tensor:
        """The expected return ``[B, num_actions]`` of each action."""
        return expected_values(output, self.atoms, self.v_min, self.v_max)


def expected_values(output: Tensor, atoms: int, v_min: float, v_max: float) -> Tensor:
    """The expected return ``[B, A]`` of each action.

    Args:
        output: ``[B, A * atoms]``: the returns, or for each action the logits of evenly spaced ones.
        atoms: 1 for the returns themselves.
        v_min: the lowest of those spaced ones.
        v_max: the highest.
    """
    if atoms == 1:
        return output.float()
    returns = torch.linspace(v_min, v_max, atoms, device=output.device)
    expected: Tensor = output.float().reshape(len(output), -1, atoms).softmax(2) @ returns
    return expected


def _normal_density(noise: Tensor, log_std: Tensor) -> Tensor:
    """Log density ``[B]`` of ``mean + exp(log_std) * noise``."""
    return (-0.5 * noise.square() - log_std - LOG_SQRT_2PI).sum(1)


def _log_squash(u: Tensor) -> Tensor:
    """``sum log(1 - tanh(u)^2)``, ``[B]``: of equation 26 the second term, in a form that cannot overflow."""
    return (2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))).sum(1)
