"""The distributions over actions that a policy's description can name, in NumPy.

Each is made of the table ``description.distribution``, the policy's arrays (``action_low`` and
``action_high`` are read) and the number of outputs of its network; one that does not fit raises KeyError,
TypeError or ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spreeze_zmq.policy.actor import ActionDistribution, Actions, Arrays, Box, Drawn, Floats, places
from spreeze_zmq.policy.choices import Categorical, EpsilonGreedy
from spreeze_zmq.policy.description import number, numbers_in_order

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def make_head(about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> ActionDistribution:
    """The head that the table ``about`` describes.

    Raises:
        KeyError, TypeError, ValueError: there is no such distribution, or it does not fit.
    """
    kind = about["kind"]
    if kind not in HEADS:
        raise ValueError(f"unknown distribution {kind!r}; there is {', '.join(HEADS)}")
    head = HEADS[kind](about, arrays, num_outputs)
    if head.num_outputs != num_outputs:
        raise ValueError(
            f"the last layer gives {num_outputs} numbers, the distribution takes {head.num_outputs}"
        )
    return head


class TanhNormal(ActionDistribution):
    """SAC's squashed normal: ``tanh(mean + std * noise)``, stretched from [-1, 1] to the action bounds.

    Log densities are those of the action in [-1, 1]. The log standard deviation approaches ``log_std_min``
    for raw outputs far below 0, and ``log_std_max`` far above.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        if about["log_std"] != "tanh":
            raise ValueError(f"unknown log_std {about['log_std']!r} of a tanh_normal; there is 'tanh'")
        self._box = Box(arrays["action_low"], arrays["action_high"])
        low, high = numbers_in_order(about, "log_std_min", "log_std_max")
        self.num_outputs = 2 * self._box.num  # rows of the network are [mean, raw log std]
        self._log_std_min, self._half_range = np.float32(low), np.float32(0.5 * (high - low))

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions within the bounds, and their log densities."""
        return self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise."""
        return self._box.stretch(np.tanh(output[:, : self._box.num]))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, 2 A]``, from ``[N, A]`` standard normal numbers."""
        log_std = np.tanh(output[:, self._box.num :])
        log_std += np.float32(1.0)
        log_std *= self._half_range
        log_std += self._log_std_min
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self._box.num]
        density = _normal_terms(log_std, noise) - _log_slope(u) if log_prob else None
        action = self._box.stretch(np.tanh(u, out=u))
        return action, None if density is None else density.sum(1, dtype=np.float32)


class Normal(ActionDistribution):
    """PPO's normal: ``u = mean + std * noise``; the action is ``centre + half * u`` in a bounded box and
    ``u`` elsewhere.

    Drawn actions may leave the bounds: their density is that of ``u``, and the environment receives them
    clipped. The network's rows are the means ``[A]``, then the log standard deviations ``[A]``, which are
    clipped to ``log_std_min`` and ``log_std_max``.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        if num_outputs % 2:
            raise ValueError(
                f"a normal takes two numbers for each action, the last layer gives {num_outputs}"
            )
        bounded = "action_low" in arrays or "action_high" in arrays
        self._box = Box(arrays["action_low"], arrays["action_high"]) if bounded else None
        self._num = num_outputs // 2 if self._box is None else self._box.num
        self.num_outputs = 2 * self._num
        self._limits = [np.float32(limit) for limit in numbers_in_order(about, "log_std_min", "log_std_max")]

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn | None:
        """``num`` actions within the bounds, and the log densities of their ``u``; None without bounds."""
        return None if self._box is None else self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise, within the bounds."""
        return self.env_action(self._scaled(output[:, : self._num].copy()))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, 2 A]``, from ``[N, A]`` standard normal numbers."""
        low, high = self._limits
        log_std = np.minimum(np.maximum(output[:, self._num :], low), high)
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self._num]
        density = _normal_terms(log_std, noise).sum(1, dtype=np.float32) if log_prob else None
        return self._scaled(u), density

    def env_action(self, action: Actions) -> Actions:
        """Clipped to the bounds, where there are some."""
        return action if self._box is None else self._box.clip(action)

    def _scaled(self, u: Floats) -> Floats:
        """Overwrites ``u`` ``[N, A]``."""
        if self._box is None:
            return u
        u *= self._box.half
        u += self._box.centre
        return u.reshape(len(u), *self._box.shape)


class Deterministic(ActionDistribution):
    """TD3's action with noise: ``tanh(output) + sigma * noise`` within [-1, 1], stretched to the action
    bounds.

    ``sigma`` grows evenly from ``noise_min`` in the first of the run's environments to ``noise_max`` in the
    last one (Ape-X, arXiv 1803.00933, spreads its exploration over actors in the same spirit).
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        low, high = number(about, "noise_min"), number(about, "noise_max")
        if min(low, high) < 0.0:
            raise ValueError(f"noise_min {low} and noise_max {high} must not be negative")
        self._box = Box(arrays["action_low"], arrays["action_high"])
        self.num_outputs = self._box.num
        self._noise_min, self._noise_max = np.float32(low), np.float32(high)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions within the bounds, and their log densities."""
        return self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, A]`` without noise."""
        return self._box.stretch(np.tanh(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, A]``, from ``[N, A]`` standard normal numbers.

        Raises:
            ValueError: a density is requested; clipped noise has none.
        """
        if log_prob:
            raise ValueError("a deterministic policy has no log_prob, but it is asked for")
        place = places(len(output)) if place is None else np.asarray(place, np.float32)
        sigma = self._noise_min + (self._noise_max - self._noise_min) * place
        unit = rng.standard_normal(output.shape, np.float32)
        unit *= sigma[:, None]
        unit += np.tanh(output)
        np.clip(unit, -1.0, 1.0, out=unit)
        return self._box.stretch(unit), None


HEADS: dict[str, Callable[[Mapping[str, Any], Arrays, int], ActionDistribution]] = {
    "tanh_normal": TanhNormal,
    "normal": Normal,
    "deterministic": Deterministic,
    "categorical": Categorical,
    "epsilon_greedy": EpsilonGreedy,
}

#: Those over discrete actions, which an action mask can restrict.
CHOICES = frozenset({"categorical", "epsilon_greedy"})


def _normal_terms(log_std: Floats, noise: Floats) -> Floats:
    """Log densities ``[N, A]`` of the numbers of a normal that ``noise`` standard deviations make."""
    terms: Floats = np.float32(-0.5) * noise * noise - log_std - np.float32(_LOG_SQRT_2PI)
    return terms


def _log_slope(u: Floats) -> Floats:
    """``log(1 - tanh(u)^2)``, the correction of arXiv 1812.05905, equation 26; this form never overflows."""
    slope: Floats = np.float32(2.0) * (
        np.float32(math.log(2.0)) - u - np.logaddexp(np.float32(0.0), np.float32(-2.0) * u)
    )
    return slope
