"""The Gaussian over actions that is not squashed (PPO)."""

from __future__ import annotations

import math

import numpy as np

from spreeze_zmq.policy.head import Actions, Box, Drawn, Floats

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


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
