"""Gymnasium's poles on a cart: ``InvertedPendulum`` and ``InvertedDoublePendulum`` (v5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco.randomization import Floats
from spreeze_zmq.envs.task import Outcome, Rows
from spreeze_zmq.envs.tasks.parts import NoisyStart


@dataclass(eq=False)
class InvertedPendulum(NoisyStart):
    """``InvertedPendulum-v5``; terminates where the pole leans more than 0.2 rad."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01

    def observe(self, rows: Rows) -> Floats:
        """``[n, nq + nv]``."""
        return np.concatenate((self.qpos[rows], self.qvel[rows]), axis=1)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Reward 1 for each step in which the pole stands."""
        terminated = np.abs(self.qpos[:, 1]) > 0.2
        reward = (~terminated).astype(np.int64)
        return reward, terminated, {"reward_survive": reward}


@dataclass(eq=False)
class InvertedDoublePendulum(NoisyStart):
    """``InvertedDoublePendulum-v5``; terminates where the tip is at a height of 1 or less."""

    derived: ClassVar[tuple[str, ...]] = ("site_xpos", "qfrc_constraint")
    normal_velocities: ClassVar[bool] = True

    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0

    site_xpos: Floats = field(init=False, repr=False)
    qfrc_constraint: Floats = field(init=False, repr=False)

    def observe(self, rows: Rows) -> Floats:
        """Cart position, sines and cosines of the poles, velocities and constraint force clipped to 10."""
        qpos, angles = self.qpos[rows], self.qpos[rows, 1:]
        velocity = self.qvel[rows].clip(-10.0, 10.0)
        force = self.qfrc_constraint[rows, :1].clip(-10.0, 10.0)
        return np.concatenate((qpos[:, :1], np.sin(angles), np.cos(angles), velocity, force), axis=1)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Healthy reward, less the tip's distance from upright and the poles' velocities."""
        x, y = self.site_xpos[:, 0, 0], self.site_xpos[:, 0, 2]
        v1, v2 = self.qvel[:, 1], self.qvel[:, 2]
        terminated = y <= 1
        distance = 0.01 * x**2 + (y - 2) ** 2
        velocity = 1e-3 * v1**2 + 5e-3 * v2**2
        survive = self.healthy_reward * ~terminated
        parts = {"reward_survive": survive, "distance_penalty": -distance, "velocity_penalty": -velocity}
        return survive - distance - velocity, terminated, parts
