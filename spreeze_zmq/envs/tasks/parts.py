"""Initial states, costs and infos that several of Gymnasium's MuJoCo tasks share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco import MujocoTask
from spreeze_zmq.envs.mujoco.randomization import Floats


def uniform_state(task: MujocoTask, scale: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """``qpos`` ``[nq]`` and ``qvel`` ``[nv]`` with uniform noise within ``scale`` of the model's state."""
    qpos = task.init_qpos + rng.uniform(-scale, scale, task.model.nq)
    return qpos, task.init_qvel + rng.uniform(-scale, scale, task.model.nv)


def normal_velocity_state(task: MujocoTask, scale: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """``qpos`` ``[nq]`` with uniform noise, ``qvel`` ``[nv]`` with normal noise, both by ``scale``."""
    qpos = task.init_qpos + rng.uniform(-scale, scale, task.model.nq)
    return qpos, task.init_qvel + scale * rng.standard_normal(task.model.nv)


def square_cost(weight: float, values: NDArray[Any]) -> NDArray[Any]:
    """``[N]`` weighted sums of squares of ``values`` ``[N, k]``, in their own dtype as in Gymnasium."""
    cost: NDArray[Any] = weight * np.add.reduce(np.square(values), axis=1)
    return cost


def norm(vectors: Floats) -> Floats:
    """``[n]`` lengths of ``[n, k]``."""
    length: Floats = np.sqrt(np.add.reduce(np.square(vectors), axis=1))
    return length


def within(value: Floats, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """``[N]``: ``value`` is in the open interval."""
    return (bounds[0] < value) & (value < bounds[1])


def xy_info(qpos: Floats) -> dict[str, NDArray[Any]]:
    """Position in the plane and its distance from the origin, each ``[n]``, of ``qpos`` ``[n, nq]``."""
    x, y = qpos[:, 0], qpos[:, 1]
    return {"x_position": x, "y_position": y, "distance_from_origin": np.sqrt(x * x + y * y)}
