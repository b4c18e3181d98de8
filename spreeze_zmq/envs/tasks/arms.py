"""Gymnasium's arms: ``Reacher`` and ``Pusher`` (v5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco import MujocoTask
from spreeze_zmq.envs.mujoco.randomization import Floats
from spreeze_zmq.envs.task import Outcome, Rows
from spreeze_zmq.envs.tasks.parts import norm, square_cost


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
        dist = -norm(self.reach(slice(None))) * self.reward_dist_weight
        ctrl = -square_cost(self.reward_control_weight, action)
        return dist + ctrl, self.never(), {"reward_dist": dist, "reward_ctrl": ctrl}


@dataclass(eq=False)
class Pusher(MujocoTask):
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
        near = -norm(pushed - self.xpos[:, self._tips]) * self.reward_near_weight
        dist = -norm(pushed - self.xpos[:, self._goal]) * self.reward_dist_weight
        ctrl = -square_cost(self.reward_control_weight, action)
        parts = {"reward_dist": dist, "reward_ctrl": ctrl, "reward_near": near}
        return dist + ctrl + near, self.never(), parts
