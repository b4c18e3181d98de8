"""How the output of an acting network becomes actions: the torch side of ``spreeze_zmq.policy``.

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
#: The logit or value of an illegal action: finite, so that no gradient of a sum over all actions is NaN, and
#: so low that its probability is exactly 0.
ILLEGAL = -1e8
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


def _check(
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
        _check(self, env, ("box",), needs_bounds)
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
        return mean, log_std.clamp(self.log_std_min, self.log_std_max)


class Deterministic(_Box):
    """``tanh`` of each row ``[B, A]``; samplers add normal noise, of another size in each environment.

    Args:
        env: has a bounded box of actions.
        noise_min: standard deviation in the run's first environment, in unit actions.
        noise_max: standard deviation in the last one.
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


class Categorical(Distribution):
    """One choice for each of ``env.action_sizes``; rows hold the logits of all choices side by side.

    Each ``mask`` is ``[B, num_outputs]`` bool: a choice that it forbids has the probability 0. None forbids
    none.
    """

    def __init__(self, env: EnvironmentSpec) -> None:
        _check(self, env, ("discrete", "multi_discrete"))
        self.sizes = tuple(env.action_sizes)
        self.num_outputs = sum(self.sizes)
        self._masked = env.action_mask

    def describe(self) -> dict[str, Any]:
        return {"kind": "categorical", "sizes": list(self.sizes), **_asks_for_masks(self._masked)}

    def sample(self, output: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Actions, int64 ``[B]`` or ``[B, A]`` for several, and their log probabilities ``[B]``."""
        logits = self.log_probs(output, mask)
        action = torch.cat([torch.multinomial(part.exp(), 1) for part in logits], 1)
        action = action[:, 0] if len(self.sizes) == 1 else action
        return action, self.log_prob(output, action, mask)

    def log_prob(self, output: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log probabilities ``[B]`` of actions ``[B]`` or ``[B, A]``."""
        choices = action.reshape(-1, len(self.sizes)).long().unbind(1)
        parts = zip(self.log_probs(output, mask), choices, strict=True)
        return torch.cat([part.gather(1, choice.unsqueeze(1)) for part, choice in parts], 1).sum(1)

    def entropy(self, output: Tensor, mask: Tensor | None = None) -> Tensor:
        """The entropy in nats, ``[B]``."""
        terms = [(part.exp() * part).sum(1, keepdim=True) for part in self.log_probs(output, mask)]
        return -torch.cat(terms, 1).sum(1)

    def log_probs(self, output: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """The log probabilities ``[B, size]`` of all choices of each discrete action."""
        logits = legal(output.float(), mask)
        return [part.log_softmax(1) for part in torch.split(logits, list(self.sizes), 1)]


class EpsilonGreedy(Distribution):
    """The action of the highest value, or with a small probability a uniformly random one.

    Environment ``i`` of the run takes a random action with the probability ``epsilon ** (1 + spread * p_i)``,
    with ``p_i`` from 0 for the first to 1 for the last (Horgan et al. 2018, arXiv 1803.00933, section 4.1,
    with a spread of 7).

    Args:
        env: has the number of actions.
        epsilon: the base of that probability.
        spread: 0 for the same probability in all environments.
        atoms: 1 for rows of action values; above 1, for each action in turn the logits of that many returns,
            evenly spaced.
        v_min: lowest of these returns.
        v_max: highest of these returns.
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
        _check(self, env, ("discrete",))
        self.num_actions, self.atoms = env.num_actions, atoms
        self.num_outputs = self.num_actions * atoms
        self.epsilon, self.spread = epsilon, spread
        self.v_min, self.v_max = v_min, v_max
        self._masked = env.action_mask

    def describe(self) -> dict[str, Any]:
        exploration = {"epsilon": self.epsilon, "spread": self.spread}
        atoms = {"atoms": self.atoms, "v_min": self.v_min, "v_max": self.v_max}
        masks = _asks_for_masks(self._masked)
        return {"kind": "epsilon_greedy", "num_actions": self.num_actions, **exploration, **atoms, **masks}

    def values(self, output: Tensor) -> Tensor:
        """The expected return ``[B, num_actions]`` of each action."""
        return expected_values(output, self.atoms, self.v_min, self.v_max)


def legal(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Logits or values ``[B, num_actions]`` with ``ILLEGAL`` for each action that a mask, of the same shape
    and bool, forbids; as they are where it is None.
    """
    return rows if mask is None else rows.masked_fill(~mask, ILLEGAL)


def _asks_for_masks(masked: bool) -> dict[str, bool]:
    """What a description says of an environment with action masks; nothing for others."""
    return {"action_mask": True} if masked else {}


def expected_values(output: Tensor, atoms: int, v_min: float, v_max: float) -> Tensor:
    """The expected return ``[B, num_actions]`` of each action from rows of :class:`EpsilonGreedy`."""
    if atoms == 1:
        return output.float()
    return nn.expectation(output.float().reshape(len(output), -1, atoms), v_min, v_max)


def _normal_density(noise: Tensor, log_std: Tensor) -> Tensor:
    """Log density ``[B]`` of ``mean + exp(log_std) * noise``."""
    return (-0.5 * noise.square() - log_std - LOG_SQRT_2PI).sum(1)


def _log_squash(u: Tensor) -> Tensor:
    """``sum log(1 - tanh(u)^2)``, ``[B]``: the second term of equation 26, in a form that cannot overflow."""
    return (2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))).sum(1)
