"""Gymnasium's tasks that are fixed to the world: poles on a cart (inverted pendulums) and arms (v5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco import MujocoTask
from spreeze_zmq.envs.mujoco.randomization import Floats
from spreeze_zmq.envs.task import Outcome, Rows
from spreeze_zmq.envs.tasks.parts import NoisyStart, square_cost


@dataclass(eq=False)
class Reacher(MujocoTask):
    """``Reacher-v5``; never terminates."""

    derived: ClassVar[tuple[str, ...]] = ("xpos",)

    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0

    xpos: Floats = field(init=False, repr=False)

    def prepare(self) -> None:
        """Find the bodies by name."""
        self._fingertip, self._target = (self.model.body(name).id for name in ("fingertip", "target"))

    def initial_state(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The arm almost straight, the target anywhere on a disc."""
        qpos = rng.uniform(-0.1, 0.1, self.model.nq) + self.init_qpos
        while True:
            goal = rng.uniform(-0.2, 0.2, 2)
            if np.linalg.norm(goal) < 0.2:
                break
        qpos[-2:] = goal
        qvel = self.init_qvel + rng.uniform(-0.005, 0.005, self.model.nv)
        qvel[-2:] = 0
        return qpos, qvel

    def reach(self, rows: Rows) -> Floats:
        """``[n, 3]``: the vector from the target to the fingertip."""
        return self.xpos[rows, self._fingertip] - self.xpos[rows, self._target]

    def observe(self, rows: Rows) -> Floats:
        """Cosines and sines of the joints, the target, the joints' velocities, target to fingertip."""
        qpos = self.qpos[rows]
        theta = qpos[:, :2]
        reach = self.reach(rows)[:, :2]
        return np.concatenate((np.cos(theta), np.sin(theta), qpos[:, 2:], self.qvel[rows, :2], reach), axis=1)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Minus the distance from target to fingertip and the control cost."""
        dist = -_norm(self.reach(slice(None))) * self.reward_dist_weight
        ctrl = -square_cost(self.reward_control_weight, action)
        return dist + ctrl, self.never(), {"reward_dist": dist, "reward_ctrl": ctrl}


@dataclass(eq=False)
class PusherArm(MujocoTask):
    """``Pusher-v5``; never terminates."""

    derived: ClassVar[tuple[str, ...]] = ("xpos",)

    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1

    xpos: Floats = field(init=False, repr=False)

    def prepare(self) -> None:
        """Find the bodies by name."""
        names = ("tips_arm", "object", "goal")
        self._tips, self._object, self._goal = (self.model.body(name).id for name in names)

    def initial_state(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The arm at rest, the object away from the goal."""
        qpos = self.init_qpos.copy()
        while True:
            place = np.concatenate((rng.uniform(-0.3, 0.0, 1), rng.uniform(-0.2, 0.2, 1)))
            if np.linalg.norm(place) > 0.17:
                break
        qpos[-4:-2] = place
        qpos[-2:] = 0.0
        qvel = self.init_qvel + rng.uniform(-0.005, 0.005, self.model.nv)
        qvel[-4:] = 0
        return qpos, qvel

    def observe(self, rows: Rows) -> Floats:
        """The arm's joints and their velocities, positions of its tip, the object and the goal."""
        xpos = self.xpos[rows]
        places = (xpos[:, self._tips], xpos[:, self._object], xpos[:, self._goal])
        return np.concatenate((self.qpos[rows, :7], self.qvel[rows, :7], *places), axis=1)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Minus the distances from tip to object and from object to goal, and the control cost."""
        pushed = self.xpos[:, self._object]
        near = -_norm(pushed - self.xpos[:, self._tips]) * self.reward_near_weight
        dist = -_norm(pushed - self.xpos[:, self._goal]) * self.reward_dist_weight
        ctrl = -square_cost(self.reward_control_weight, action)
        parts = {"reward_dist": dist, "reward_ctrl": ctrl, "reward_near": near}
        return dist + ctrl + near, self.never(), parts


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


def _norm(vectors: Floats) -> Floats:
    """``[n]`` lengths of ``[n, k]``."""
    length: Floats = np.sqrt(np.add.reduce(np.square(vectors), axis=1))
    return length
