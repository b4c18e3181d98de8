"""Gymnasium's planar runners and swimmer: ``HalfCheetah``, ``Hopper``, ``Walker2d``, ``Swimmer`` (v5)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco.randomization import Floats
from spreeze_zmq.envs.task import Outcome, Rows
from spreeze_zmq.envs.tasks.parts import Locomotion, square_cost, within, xy_info


@dataclass(eq=False)
class Runner(Locomotion):
    """Rewarded for forward velocity less control cost; observes ``qpos`` and ``qvel``."""

    num_position: ClassVar[int] = 1

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    reset_noise_scale: float = 5e-3

    def before(self) -> None:
        """Store the position from which the velocity is measured."""
        self._position_before = self.qpos[:, : self.num_position].copy()

    def observe(self, rows: Rows) -> Floats:
        """``[n, nq - num_position + nv]``, or ``[n, nq + nv]`` with the position in the world."""
        return np.concatenate((self.observed_qpos(rows), self.velocity(rows)), axis=1)

    def velocity(self, rows: Rows) -> Floats:
        """``qvel`` as it is observed."""
        return self.qvel[rows]

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Mean forward velocity over the step less control cost."""
        velocity = (self.qpos[:, : self.num_position] - self._position_before) / self.dt
        forward = self.forward_reward_weight * velocity[:, 0]
        cost = square_cost(self.ctrl_cost_weight, action)
        names = ("x_velocity", "y_velocity")[: self.num_position]
        parts = dict(zip(names, velocity.T, strict=True))
        return forward - cost, self.never(), {**parts, "reward_forward": forward, "reward_ctrl": -cost}

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Position ``[n]``."""
        return {"x_position": self.qpos[rows, 0]}


@dataclass(eq=False)
class HalfCheetah(Runner):
    """``HalfCheetah-v5``; never terminates."""

    normal_velocities: ClassVar[bool] = True

    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1


@dataclass(eq=False)
class UprightRunner(Runner):
    """A runner that must stay upright; observes velocities clipped to 10."""

    frame_skip: int = 4
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True

    @abstractmethod
    def is_healthy(self) -> NDArray[np.bool_]:
        """``[N]``: upright and in range."""

    def velocity(self, rows: Rows) -> Floats:
        """``qvel`` clipped to 10."""
        return self.qvel[rows].clip(-10.0, 10.0)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Forward velocity and healthy reward less control cost."""
        healthy = self.is_healthy()
        _, never, parts = super().outcome(action)
        survive = parts["reward_survive"] = healthy * self.healthy_reward
        reward = parts["reward_forward"] + survive + parts["reward_ctrl"]  # in Gymnasium's order
        return reward, ~healthy if self.terminate_when_unhealthy else never, parts

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Position and height above rest, each ``[n]``."""
        height = self.qpos[rows, 1] - self.init_qpos[1]
        return {**super().state_info(rows), "z_distance_from_origin": height}


@dataclass(eq=False)
class Hopper(UprightRunner):
    """``Hopper-v5``."""

    xml_file: str = "hopper.xml"
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, math.inf)
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)

    def is_healthy(self) -> NDArray[np.bool_]:
        """Height, angle and the rest of the state within their open ranges."""
        qpos, (low, high) = self.qpos, self.healthy_state_range
        rest = np.concatenate((qpos[:, 2:], self.qvel), axis=1)
        least, most = rest.min(axis=1), rest.max(axis=1)
        healthy: NDArray[np.bool_] = (low < least) & (most < high)
        healthy &= within(qpos[:, 1], self.healthy_z_range)
        return healthy & within(qpos[:, 2], self.healthy_angle_range)


@dataclass(eq=False)
class Walker2d(UprightRunner):
    """``Walker2d-v5``."""

    xml_file: str = "walker2d_v5.xml"
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)

    def is_healthy(self) -> NDArray[np.bool_]:
        """Height and angle within their open ranges."""
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        return within(z, self.healthy_z_range) & within(angle, self.healthy_angle_range)


@dataclass(eq=False)
class Swimmer(Runner):
    """``Swimmer-v5``; never terminates."""

    num_position: ClassVar[int] = 2

    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Position and distance from the origin, each ``[n]``."""
        return xy_info(self.qpos[rows])
