"""Gymnasium's planar runners and swimmer: ``HalfCheetah``, ``Hopper``, ``Walker2d``, ``Swimmer`` (v5)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..mujoco_task import Floats, MujocoTask
from ..task import Rows

Outcome = tuple[NDArray[Any], NDArray[np.bool_], dict[str, NDArray[Any]]]


@dataclass(eq=False)
class Runner(MujocoTask):
    """Rewarded for moving forward, charged for effort; observes ``qpos`` (without its place) and ``qvel``."""

    #: Coordinates of ``qpos`` that are its place in the world.
    num_place: ClassVar[int] = 1

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True

    def initial_state(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Uniform noise around the model's own state."""
        scale = self.reset_noise_scale
        qpos = self.init_qpos + rng.uniform(-scale, scale, self.model.nq)
        return qpos, self.init_qvel + rng.uniform(-scale, scale, self.model.nv)

    def before(self) -> None:
        """Keep the place from which velocities are measured."""
        self._place_before = self.qpos[:, : self.num_place].copy()

    def observe(self, rows: Rows) -> Floats:
        """``[n, nq - num_place + nv]``."""
        skipped = self.num_place if self.exclude_current_positions_from_observation else 0
        return np.concatenate((self.qpos[rows, skipped:], self.velocity(rows)), axis=1)

    def velocity(self, rows: Rows) -> Floats:
        """``qvel`` as it is observed."""
        return self.qvel[rows]

    def place_velocity(self) -> Floats:
        """``[N, num_place]`` mean velocity over the step."""
        return (self.qpos[:, : self.num_place] - self._place_before) / self.dt

    def control_cost(self, action: NDArray[Any]) -> NDArray[Any]:
        """``[N]``: what the effort costs."""
        return square_cost(self.ctrl_cost_weight, action)

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Where it is."""
        return {"x_position": self.qpos[rows, 0]}


@dataclass(eq=False)
class HalfCheetah(Runner):
    """``HalfCheetah-v5``; never terminates."""

    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1

    def initial_state(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Uniform noise on positions, normal noise on velocities."""
        scale = self.reset_noise_scale
        qpos = self.init_qpos + rng.uniform(-scale, scale, self.model.nq)
        return qpos, self.init_qvel + scale * rng.standard_normal(self.model.nv)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Forward velocity less effort."""
        x_velocity = self.place_velocity()[:, 0]
        forward = self.forward_reward_weight * x_velocity
        cost = self.control_cost(action)
        parts = {"x_velocity": x_velocity, "reward_forward": forward, "reward_ctrl": -cost}
        return forward - cost, self.never(), parts


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
        """Forward velocity and health less effort."""
        healthy = self.is_healthy()
        x_velocity = self.place_velocity()[:, 0]
        forward = self.forward_reward_weight * x_velocity
        survive = healthy * self.healthy_reward
        cost = self.control_cost(action)
        parts = {
            "x_velocity": x_velocity,
            "reward_forward": forward,
            "reward_ctrl": -cost,
            "reward_survive": survive,
        }
        terminated = ~healthy if self.terminate_when_unhealthy else self.never()
        return forward + survive - cost, terminated, parts

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Where it is, and how much higher than at rest."""
        qpos = self.qpos
        return {
            "x_position": qpos[rows, 0],
            "z_distance_from_origin": qpos[rows, 1] - self.init_qpos[1],
        }


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
        return (
            healthy & within(qpos[:, 1], self.healthy_z_range) & within(qpos[:, 2], self.healthy_angle_range)
        )


@dataclass(eq=False)
class Walker2d(UprightRunner):
    """``Walker2d-v5``."""

    xml_file: str = "walker2d_v5.xml"
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)

    def is_healthy(self) -> NDArray[np.bool_]:
        """Height and angle within their open ranges."""
        return within(self.qpos[:, 1], self.healthy_z_range) & within(
            self.qpos[:, 2], self.healthy_angle_range
        )


@dataclass(eq=False)
class Swimmer(Runner):
    """``Swimmer-v5``; never terminates."""

    num_place: ClassVar[int] = 2

    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Forward velocity less effort."""
        velocity = self.place_velocity()
        forward = self.forward_reward_weight * velocity[:, 0]
        cost = self.control_cost(action)
        parts = {
            "x_velocity": velocity[:, 0],
            "y_velocity": velocity[:, 1],
            "reward_forward": forward,
            "reward_ctrl": -cost,
        }
        return forward - cost, self.never(), parts

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Where it is, and how far from the origin."""
        return xy_info(self.qpos[rows])


def square_cost(weight: float, values: NDArray[Any]) -> NDArray[Any]:
    """``[N]`` weighted squares of ``values`` ``[N, k]``, in their own precision as in Gymnasium."""
    cost: NDArray[Any] = weight * np.add.reduce(np.square(values), axis=1)
    return cost


def within(value: Floats, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """``[N]``: in the open interval."""
    return (bounds[0] < value) & (value < bounds[1])


def xy_info(qpos: Floats) -> dict[str, NDArray[Any]]:
    """Place in the plane, and distance from its origin, of ``qpos`` ``[n, nq]``."""
    x, y = qpos[:, 0], qpos[:, 1]
    return {"x_position": x, "y_position": y, "distance_from_origin": np.sqrt(x * x + y * y)}
