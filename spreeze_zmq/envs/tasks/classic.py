"""Gymnasium's ``Pendulum-v1`` and ``CartPole-v1`` as arithmetic over the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.utils import maybe_parse_reset_bounds, verify_number_and_cast
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from spreeze_zmq.envs.infos import Options
from spreeze_zmq.envs.task import Outcome, Rngs, Rows, Task


@dataclass(eq=False)
class Pendulum(Task):
    """``Pendulum-v1``; never terminates. The torque keeps the action's dtype, as in Gymnasium."""

    g: float = 10.0

    def allocate(self, num_envs: int) -> None:
        """Angle and speed of each pendulum."""
        high = np.array([1.0, 1.0, 8.0], np.float32)
        self.observation_space = Box(-high, high, dtype=np.float32)
        self.action_space = Box(-2.0, 2.0, (1,), np.float32)
        self._angle, self._speed = np.zeros(num_envs), np.zeros(num_envs)
        self._never = np.zeros(num_envs, np.bool_)

    def begin(self, rows: NDArray[np.intp], rngs: Rngs, options: Options) -> None:
        """Uniform angle and speed within the options ``x_init`` and ``y_init``."""
        options = options or {}
        bounds = (options.get("x_init", math.pi), options.get("y_init", 1.0))
        high = np.array([verify_number_and_cast(bound) for bound in bounds])
        for row, rng in zip(rows, rngs, strict=True):
            self._angle[row], self._speed[row] = rng.uniform(low=-high, high=high)

    def advance(self, action: NDArray[Any]) -> None:
        """One step of 0.05 s; the cost is that of the state before the step."""
        angle, speed = self._angle, self._speed
        torque = np.minimum(np.maximum(action[:, 0], -2.0), 2.0)
        upright = (angle + np.pi) % (2 * np.pi) - np.pi
        self._cost = upright * upright + 0.1 * (speed * speed) + 0.001 * (torque * torque)
        faster = speed + (3 * self.g / 2.0 * np.sin(angle) + 3.0 * torque) * 0.05
        self._speed = np.minimum(np.maximum(faster, -8.0), 8.0)
        self._angle = angle + self._speed * 0.05

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Minus the cost."""
        return -self._cost, self._never, {}

    def observe(self, rows: Rows) -> NDArray[np.float32]:
        """``[n, 3]`` cosine, sine, speed."""
        angle = self._angle[rows]
        obs = np.empty((len(angle), 3), np.float32)
        obs[:, 0] = np.cos(angle)
        obs[:, 1] = np.sin(angle)
        obs[:, 2] = self._speed[rows]
        return obs


@dataclass(eq=False)
class CartPole(Task):
    """``CartPole-v1``; terminates beyond 2.4 or 12 degrees."""

    sutton_barto_reward: bool = False

    def allocate(self, num_envs: int) -> None:
        """Cart position and speed, pole angle and angular speed."""
        self._most_angle = 12 * 2 * math.pi / 360
        high = np.array([4.8, np.inf, 2 * self._most_angle, np.inf], np.float32)
        self.observation_space = Box(-high, high, dtype=np.float32)
        self.action_space = Discrete(2)
        self._state = np.zeros((4, num_envs))

    def begin(self, rows: NDArray[np.intp], rngs: Rngs, options: Options) -> None:
        """A uniform state within the options ``low`` and ``high``."""
        low, high = maybe_parse_reset_bounds(options, -0.05, 0.05)
        for row, rng in zip(rows, rngs, strict=True):
            self._state[:, row] = rng.uniform(low=low, high=high, size=(4,))

    def advance(self, action: NDArray[Any]) -> None:
        """One Euler step of 0.02 s (Florian 2007, equations 23 and 24)."""
        x, speed, angle, spin = self._state
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        total, moment = 0.1 + 1.0, 0.1 * 0.5
        push = (force + moment * np.square(spin) * sin) / total
        turning = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * np.square(cos) / total))
        moving = push - moment * turning * cos / total
        self._state = np.stack(
            (x + 0.02 * speed, speed + 0.02 * moving, angle + 0.02 * spin, spin + 0.02 * turning)
        )

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """1 for each step; with ``sutton_barto_reward`` 0, and -1 at the end."""
        x, _, angle, _ = self._state
        terminated = (np.abs(x) > 2.4) | (np.abs(angle) > self._most_angle)
        reward = -1.0 * terminated if self.sutton_barto_reward else np.ones(len(x))
        return reward, terminated, {}

    def observe(self, rows: Rows) -> NDArray[np.float32]:
        """``[n, 4]`` the state as float32."""
        return self._state[:, rows].T.astype(np.float32, order="C")
