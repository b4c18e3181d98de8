"""The squashed Gaussian over actions (SAC)."""

from __future__ import annotations

import math

import numpy as np

from spreeze_zmq.policy.head import Actions, Box, Drawn, Floats

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
