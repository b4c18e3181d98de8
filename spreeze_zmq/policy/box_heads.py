"""Distributions over actions in a box: SAC's squashed normal, PPO's normal, TD3's action with noise."""

from __future__ import annotations

import math

import numpy as np

from spreeze_zmq.policy.head import Actions, Box, Drawn, Floats, evenly_spread

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class TanhNormal:
    """``tanh(mean + std * noise)``, stretched from [-1, 1] to the action bounds.

    Log densities are those of the action in [-1, 1].

    Args:
        box: the bounds.
        log_std_min: what the log standard deviation tends to for raw outputs far below 0.
        log_std_max: likewise above.
    """

    def __init__(self, box: Box, log_std_min: float, log_std_max: float) -> None:
        self.num_outputs = 2 * box.num  # rows of the network are [mean, raw log std]
        self._box, self._num = box, box.num
        self._log_std_min = np.float32(log_std_min)
        self._half_range = np.float32(0.5 * (log_std_max - log_std_min))
        self.uniform = box.uniform

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise."""
        return self._box.stretch(np.tanh(output[:, : self._num]))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, 2 A]``, from ``[N, A]`` standard normal numbers."""
        log_std = np.tanh(output[:, self._num :])
        log_std += np.float32(1.0)
        log_std *= self._half_range
        log_std += self._log_std_min
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self._num]
        density = _log_density(u, log_std, noise) if log_prob else None
        return self._box.stretch(np.tanh(u, out=u)), density

    def env_action(self, action: Actions) -> Actions:
        """The same: they never leave the bounds."""
        return action


def _log_density(u: Floats, log_std: Floats, noise: Floats) -> Floats:
    """Log density ``[N]`` of ``tanh(u)``: arXiv 1812.05905, equation 26, in a form that cannot overflow."""
    squash = np.float32(2.0) * (
        np.float32(math.log(2.0)) - u - np.logaddexp(np.float32(0.0), np.float32(-2.0) * u)
    )
    terms = np.float32(-0.5) * noise * noise - log_std - np.float32(_LOG_SQRT_2PI) - squash
    density: Floats = terms.sum(1, dtype=np.float32)
    return density


class Normal:
    """``u = mean + std * noise``; the action is ``centre + half * u`` in a bounded box and ``u`` elsewhere.

    Drawn actions may leave the bounds: their density is that of ``u``, and the environment is given them
    clipped.

    Args:
        box: the bounds; None where there are none.
        num_outputs: of the network: the means ``[A]``, then the log standard deviations ``[A]``.
        log_std_min: log standard deviations below it are raised to it.
        log_std_max: those above it are lowered to it.
    """

    def __init__(self, box: Box | None, num_outputs: int, log_std_min: float, log_std_max: float) -> None:
        if num_outputs % 2:
            raise ValueError(
                f"a normal takes two numbers for each action, the last layer gives {num_outputs}"
            )
        self._box = box
        self._num = num_outputs // 2 if box is None else box.num
        self.num_outputs = 2 * self._num
        self._low, self._high = np.float32(log_std_min), np.float32(log_std_max)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn | None:
        """``num`` actions within the bounds, and the log densities of their ``u``; None without bounds."""
        return None if self._box is None else self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise, within the bounds."""
        return self.env_action(self._scaled(output[:, : self._num].copy()))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, 2 A]``, from ``[N, A]`` standard normal numbers."""
        log_std = np.minimum(np.maximum(output[:, self._num :], self._low), self._high)
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self._num]
        density: Floats | None = None
        if log_prob:
            terms = np.float32(-0.5) * noise * noise - log_std - np.float32(_LOG_SQRT_2PI)
            density = terms.sum(1, dtype=np.float32)
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


class Deterministic:
    """``tanh(output) + sigma * noise`` within [-1, 1], stretched to the action bounds.

    ``sigma`` grows evenly from ``noise_min`` in the first of the run's environments to ``noise_max`` in the
    last one (Ape-X, arXiv 1803.00933, spreads its exploration over actors in the same spirit).
    """

    def __init__(self, box: Box, noise_min: float, noise_max: float) -> None:
        self.num_outputs = box.num
        self._box = box
        self._noise_min, self._noise_max = np.float32(noise_min), np.float32(noise_max)
        self.uniform = box.uniform

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, A]`` without noise."""
        return self._box.stretch(np.tanh(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, A]``, from ``[N, A]`` standard normal numbers.

        Raises:
            ValueError: a density is wanted; clipped noise has none.
        """
        if log_prob:
            raise ValueError("a deterministic policy has no log_prob, but it is asked for")
        places = evenly_spread(len(output)) if place is None else np.asarray(place, np.float32)
        sigma = self._noise_min + (self._noise_max - self._noise_min) * places
        unit = rng.standard_normal(output.shape, np.float32)
        unit *= sigma[:, None]
        unit += np.tanh(output)
        np.clip(unit, -1.0, 1.0, out=unit)
        return self._box.stretch(unit), None

    def env_action(self, action: Actions) -> Actions:
        """The same: they never leave the bounds."""
        return action
