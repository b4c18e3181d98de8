"""Bases, costs and infos that several of Gymnasium's MuJoCo tasks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco import MujocoTask
from spreeze_zmq.envs.mujoco.randomization import Floats
from spreeze_zmq.envs.task import Rows


@dataclass(eq=False)
class NoisyStart(MujocoTask):
    """A task whose episodes start in the model's own state plus noise."""

    #: Whether the noise on ``qvel`` is normal; else it is uniform, as the noise on ``qpos``.
    normal_velocities: ClassVar[bool] = False

    reset_noise_scale: float = 0.1

    def initial_state(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """``qpos`` ``[nq]`` and ``qvel`` ``[nv]`` with noise of ``reset_noise_scale``."""
        scale, model = self.reset_noise_scale, self.model
        qpos = self.init_qpos + rng.uniform(-scale, scale, model.nq)
        if self.normal_velocities:
            return qpos, self.init_qvel + scale * rng.standard_normal(model.nv)
        return qpos, self.init_qvel + rng.uniform(-scale, scale, model.nv)


@dataclass(eq=False)
class Locomotion(NoisyStart):
    """A robot that moves freely in the world and pays for its controls."""

    #: The first coordinates of ``qpos``, which are the position in the world.
    num_position: ClassVar[int] = 2

    ctrl_cost_weight: float = 0.1
    exclude_current_positions_from_observation: bool = True

    def observed_qpos(self, rows: Rows) -> Floats:
        """``[n, nq]``, or ``[n, nq - num_position]`` without the position in the world."""
        return self.qpos[rows, self.num_position if self.exclude_current_positions_from_observation else 0 :]


def square_cost(weight: float, values: NDArray[Any]) -> NDArray[Any]:
    """``[N]`` weighted sums of squares of ``values`` ``[N, k]``, in their own dtype as in Gymnasium."""
    cost: NDArray[Any] = weight * np.add.reduce(np.square(values), axis=1)
    return cost


def within(value: Floats, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """``[N]``: ``value`` is in the open interval."""
    return (bounds[0] < value) & (value < bounds[1])


def xy_info(qpos: Floats) -> dict[str, NDArray[Any]]:
    """Position in the plane and its distance from the origin, each ``[n]``, of ``qpos`` ``[n, nq]``."""
    x, y = qpos[:, 0], qpos[:, 1]
    return {"x_position": x, "y_position": y, "distance_from_origin": np.sqrt(x * x + y * y)}
