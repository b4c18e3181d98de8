"""Gymnasium's legged robots that observe contact forces: ``Ant`` and both ``Humanoid`` tasks (v5)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.mujoco.randomization import Floats
from spreeze_zmq.envs.task import Outcome, Rows
from spreeze_zmq.envs.tasks.parts import Locomotion, square_cost, within, xy_info


@dataclass(eq=False)
class Walking(Locomotion):
    """Rewarded for forward velocity and for being healthy, less the costs of control and contact."""

    forward_reward_weight: float = 1.0
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True

    def walked(
        self, velocity: Floats, healthy: NDArray[np.bool_], ctrl_cost: NDArray[Any], contact_cost: Floats
    ) -> Outcome:
        """The outcome of a step, from the velocity ``[N, 2]``, the health ``[N]`` and both costs ``[N]``."""
        forward = self.forward_reward_weight * velocity[:, 0]
        survive = healthy * self.healthy_reward
        parts = {
            "x_velocity": velocity[:, 0],
            "y_velocity": velocity[:, 1],
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -ctrl_cost,
            "reward_contact": -contact_cost,
        }
        terminated = ~healthy if self.terminate_when_unhealthy else self.never()
        return forward + survive - (ctrl_cost + contact_cost), terminated, parts

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Position and distance from the origin, each ``[n]``."""
        return xy_info(self.qpos[rows])


@dataclass(eq=False)
class Ant(Walking):
    """``Ant-v5``."""

    normal_velocities: ClassVar[bool] = True

    xml_file: str = "ant.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    main_body: int | str = 1
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    include_cfrc_ext_in_observation: bool = True

    xpos: Floats = field(init=False, repr=False)
    cfrc_ext: Floats = field(init=False, repr=False)

    def fields(self) -> tuple[str, ...]:
        """Body positions, and contact forces where observation or cost needs them."""
        forces = self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0
        return ("xpos", "cfrc_ext") if forces else ("xpos",)

    def prepare(self) -> None:
        """Find the main body."""
        self._body = self.model.body(self.main_body).id
        self._has_forces = "cfrc_ext" in self.fields()
        if self._has_forces:
            self._clipped = self._clip(self.cfrc_ext)

    def before(self) -> None:
        """Store the position from which the velocity is measured."""
        self._position_before = self.xpos[:, self._body, :2].copy()

    def begin(self, rows: NDArray[np.intp], *args: Any) -> None:
        """Reset, and clip the forces of the new state."""
        super().begin(rows, *args)
        if self._has_forces:
            self._clipped[rows] = self._clip(self.cfrc_ext[rows])

    def advance(self, action: NDArray[Any]) -> None:
        """Step, and clip the forces once for observation and cost."""
        try:
            super().advance(action)
        finally:
            if self._has_forces:
                self._clipped = self._clip(self.cfrc_ext)

    def _clip(self, forces: Floats) -> Floats:
        """``[n, nbody * 6]``, each within ``contact_force_range``."""
        return forces.reshape(len(forces), -1).clip(*self.contact_force_range)

    def observe(self, rows: Rows) -> Floats:
        """Positions, velocities, and the clipped contact forces of each body except the world."""
        parts = [self.observed_qpos(rows), self.qvel[rows]]
        if self.include_cfrc_ext_in_observation:
            parts.append(self._clipped[rows, 6:])
        return np.concatenate(parts, axis=1)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Forward velocity and healthy reward less control and contact cost."""
        velocity = (self.xpos[:, self._body, :2] - self._position_before) / self.dt
        z, (low, high) = self.qpos[:, 2], self.healthy_z_range
        healthy = (low <= z) & (z <= high)  # a state that is not finite counts as a failure
        ctrl_cost = square_cost(self.ctrl_cost_weight, action)
        contact_cost = np.zeros(self.num_envs)
        if self._has_forces:
            contact_cost = square_cost(self.contact_cost_weight, self._clipped)
        return self.walked(velocity, healthy, ctrl_cost, contact_cost)


@dataclass(eq=False)
class HumanBody(Locomotion):
    """Base of both humanoid tasks: the observation of the whole body."""

    frame_skip: int = 5
    reset_noise_scale: float = 1e-2
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    cinert: Floats = field(init=False, repr=False)
    cvel: Floats = field(init=False, repr=False)
    qfrc_actuator: Floats = field(init=False, repr=False)
    cfrc_ext: Floats = field(init=False, repr=False)
    ten_length: Floats = field(init=False, repr=False)
    ten_velocity: Floats = field(init=False, repr=False)

    def observed(self) -> list[str]:
        """The fields of MjData that are observed besides ``qpos`` and ``qvel``, in Gymnasium's order."""
        names = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
        return [name for name in names if getattr(self, f"include_{name}_in_observation")]

    def fields(self) -> tuple[str, ...]:
        """Fields of observation and info, and contact forces where the cost needs them."""
        forces = ("cfrc_ext",) if self.contact_weight() != 0 else ()
        return tuple(dict.fromkeys((*self.observed(), *forces, "ten_length", "ten_velocity")))

    @abstractmethod
    def contact_weight(self) -> float:
        """Weight of the cost of contact."""

    def contact_cost(self, bounds: tuple[float, float]) -> Floats:
        """``[N]``: the weighted square of all contact forces, clipped."""
        if "cfrc_ext" not in self.fields():
            return np.zeros(self.num_envs).clip(*bounds)
        forces = self.cfrc_ext.reshape(self.num_envs, -1)
        return square_cost(self.contact_weight(), forces).clip(*bounds)

    def control_cost(self) -> Floats:
        """``[N]``, from the controls in double precision."""
        return square_cost(self.ctrl_cost_weight, self.ctrl)

    def observe(self, rows: Rows) -> Floats:
        """Positions, velocities, and the ``observed`` fields without the entries of world and root."""
        parts = [self.observed_qpos(rows), self.qvel[rows]]
        for name in self.observed():
            values: Floats = getattr(self, name)[rows]
            skipped = 6 if name == "qfrc_actuator" else 1
            parts.append(values[:, skipped:].reshape(len(values), -1))
        return np.concatenate(parts, axis=1)

    def tendon_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Tendons, ``[n, ntendon]``."""
        length, velocity = self.ten_length[rows], self.ten_velocity[rows]
        return {"tendon_length": length, "tendon_velocity": velocity}


@dataclass(eq=False)
class Humanoid(HumanBody, Walking):
    """``Humanoid-v5``."""

    xml_file: str = "humanoid.xml"
    forward_reward_weight: float = 1.25
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (-math.inf, 10.0)
    healthy_reward: float = 5.0
    healthy_z_range: tuple[float, float] = (1.0, 2.0)

    xipos: Floats = field(init=False, repr=False)

    def fields(self) -> tuple[str, ...]:
        """Also the bodies' centres of mass."""
        return (*super().fields(), "xipos")

    def contact_weight(self) -> float:
        """Weight of the cost of contact."""
        return self.contact_cost_weight

    def prepare(self) -> None:
        """Store the first centre of mass."""
        self._centre = self.mass_centre(slice(None))

    def mass_centre(self, rows: Rows) -> Floats:
        """``[n, 2]``: the centre of mass in the plane."""
        mass = self.parameter("body_mass")
        if mass.ndim == 2:  # randomized
            mass = mass[rows]
        moment = np.add.reduce(mass[..., None] * self.xipos[rows], axis=1)  # in Gymnasium's order
        centre: Floats = moment[:, :2] / mass.sum(axis=-1, keepdims=True)
        return centre

    def begin(self, rows: NDArray[np.intp], *args: Any) -> None:
        """Reset, and store the centre of mass from which the velocity is measured."""
        super().begin(rows, *args)
        self._centre[rows] = self.mass_centre(rows)

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Velocity of the centre of mass and healthy reward less control and contact cost."""
        before, self._centre = self._centre, self.mass_centre(slice(None))
        velocity = (self._centre - before) / self.dt
        healthy = within(self.qpos[:, 2], self.healthy_z_range)
        return self.walked(velocity, healthy, self.control_cost(), self.contact_cost(self.contact_cost_range))

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Position, distance from the origin, and tendons."""
        return {**super().state_info(rows), **self.tendon_info(rows)}


@dataclass(eq=False)
class HumanoidStandup(HumanBody):
    """``HumanoidStandup-v5``; never terminates."""

    xml_file: str = "humanoidstandup.xml"
    uph_cost_weight: float = 1.0
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: tuple[float, float] = (-math.inf, 10.0)

    def contact_weight(self) -> float:
        """Weight of the cost of contact."""
        return self.impact_cost_weight

    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Height less control and impact cost. As in Gymnasium, ``uph_cost_weight`` has no effect."""
        height = self.qpos[:, 2] / self.model.opt.timestep
        ctrl_cost = self.control_cost()
        impact_cost = self.contact_cost(self.impact_cost_range)
        parts = {"reward_linup": height, "reward_quadctrl": -ctrl_cost, "reward_impact": -impact_cost}
        return height - ctrl_cost - impact_cost + 1.0, self.never(), parts

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Position, height above rest, and tendons."""
        qpos = self.qpos[rows]
        place = {
            "x_position": qpos[:, 0],
            "y_position": qpos[:, 1],
            "z_distance_from_origin": qpos[:, 2] - self.init_qpos[2],
        }
        return {**place, **self.tendon_info(rows)}
