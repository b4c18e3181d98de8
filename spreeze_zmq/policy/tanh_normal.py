"""The squashed Gaussian over actions, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class TanhNormal:
    """``tanh(mean + std * noise)``, stretched from [-1, 1] to the action bounds.

    Args:
        low: lower bounds, of the shape of one action.
        high: upper bounds, likewise.
        log_std_min: what the log standard deviation tends to for raw outputs far below 0.
        log_std_max: likewise above.
    """

    def __init__(self, low: Floats, high: Floats, log_std_min: float, log_std_max: float):
        self.num_actions = low.size
        self.num_outputs = 2 * low.size  # rows of the network are [mean, raw log std]
        self._shape = low.shape
        self._low, self._high = low.reshape(-1), high.reshape(-1)
        self._half, self._centre = (self._high - self._low) / 2, (self._high + self._low) / 2
        self._log_std_min = np.float32(log_std_min)
        self._half_range = np.float32(0.5 * (log_std_max - log_std_min))

    def uniform(self, num: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """``num`` actions, each as likely as any other, and their log densities."""
        unit = rng.random((num, self.num_actions), np.float32) * np.float32(2.0) - np.float32(1.0)
        log_prob = np.full(num, -self.num_actions * math.log(2.0), np.float32)
        return self._stretch(unit), log_prob

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise."""
        return self._stretch(np.tanh(output[:, : self.num_actions]))

    def draw(self, output: Floats, rng: np.random.Generator, log_prob: bool) -> tuple[Floats, Floats | None]:
        """An action for each row ``[N, 2 A]``, and the log density ``[N]`` where asked for."""
        log_std = np.tanh(output[:, self.num_actions :])
        log_std += np.float32(1.0)
        log_std *= self._half_range
        log_std += self._log_std_min
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self.num_actions]
        density = _log_density(u, log_std, noise) if log_prob else None
        return self._stretch(np.tanh(u, out=u)), density

    def _stretch(self, unit: Floats) -> Floats:
        """Overwrites ``unit`` ``[N, A]``; rounding never leaves the bounds."""
        unit *= self._half
        unit += self._centre
        np.maximum(unit, self._low, out=unit)
        np.minimum(unit, self._high, out=unit)
        return unit.reshape(len(unit), *self._shape)


def _log_density(u: Floats, log_std: Floats, noise: Floats) -> Floats:
    """Log density ``[N]`` of ``tanh(u)``: arXiv 1812.05905, equation 26, in a form that cannot overflow."""
    squash = np.float32(2.0) * (
        np.float32(math.log(2.0)) - u - np.logaddexp(np.float32(0.0), np.float32(-2.0) * u)
    )
    terms = np.float32(-0.5) * noise * noise - log_std - np.float32(_LOG_SQRT_2PI) - squash
    density: Floats = terms.sum(1, dtype=np.float32)
    return density


def tanh_normal(about: Mapping[str, Any], low: Floats, high: Floats) -> TanhNormal:
    """The distribution of a description; the only one that there is so far."""
    if about["kind"] != "tanh_normal" or about["log_std"] != "tanh":
        raise ValueError(f"unknown distribution {about['kind']!r} with log_std {about['log_std']!r}")
    if low.shape != high.shape or low.size == 0 or not (low < high).all():
        raise ValueError(f"action bounds {low.tolist()} to {high.tolist()} are not a box")
    return TanhNormal(low, high, float(about["log_std_min"]), float(about["log_std_max"]))
