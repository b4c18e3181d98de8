"""Domain randomization: each environment of a batch gets its own parameters of the physical model.

Ranges are written as ``parameter -> range``, in a topology as::

    [run.randomize]
    body_mass = [0.8, 1.2]                          # each body's mass times its own factor
    geom_friction.floor = [0.5, 1.5]                # of the geom "floor" alone
    dof_damping.thigh = { add = [-0.5, 0.5] }       # added to the model's value
    actuator_gear = { scale = [0.9, 1.1] }          # the same as the pair without a name
    opt.gravity.2 = { set = [-10.5, -9.0] }         # replaces component 2

A parameter's name is a field of MjModel (``FIELDS``), optionally followed by the name of an element and the
index of a component. Draws are uniform: ``scale`` draws one factor for each element, ``add`` and ``set`` one
value for each number. Each reset draws again, from the generator that draws the episode's first state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidRandomization
from spreeze_zmq.base.schema import Unfit, nearest

Floats = NDArray[np.float64]

WAYS = ("scale", "add", "set")

#: Fields that can be randomized, and the kind of element of their rows. Left out are fields whose change
#: ``mj_setConst`` does not propagate (sizes and positions of geoms), and fields on which the spaces depend
#: (control ranges, the timestep).
FIELDS = {
    **dict.fromkeys(("body_mass", "body_inertia", "body_ipos", "body_pos", "body_gravcomp"), "body"),
    **dict.fromkeys(("jnt_stiffness", "jnt_range", "jnt_solref", "jnt_solimp"), "joint"),
    **dict.fromkeys(("dof_damping", "dof_frictionloss", "dof_armature"), "dof"),
    **dict.fromkeys(("geom_friction", "geom_solref", "geom_solimp", "geom_margin"), "geom"),
    **dict.fromkeys(("actuator_gear", "actuator_gainprm", "actuator_biasprm"), "actuator"),
    **dict.fromkeys(("actuator_forcerange", "actuator_dynprm"), "actuator"),
    **dict.fromkeys(("tendon_stiffness", "tendon_damping", "tendon_frictionloss"), "tendon"),
    **dict.fromkeys(("opt.gravity", "opt.wind", "opt.density", "opt.viscosity"), ""),
}
#: Fields whose numbers must stay above 0, and at least 0.
_ABOVE_ZERO = ("body_mass", "body_inertia")
_NOT_NEGATIVE = (
    *("dof_damping", "dof_frictionloss", "dof_armature", "geom_friction", "jnt_stiffness"),
    *("tendon_stiffness", "tendon_damping", "tendon_frictionloss", "opt.density", "opt.viscosity"),
)
_OBJECTS = {
    "body": (mujoco.mjtObj.mjOBJ_BODY, "nbody"),
    "joint": (mujoco.mjtObj.mjOBJ_JOINT, "njnt"),
    "geom": (mujoco.mjtObj.mjOBJ_GEOM, "ngeom"),
    "actuator": (mujoco.mjtObj.mjOBJ_ACTUATOR, "nu"),
    "tendon": (mujoco.mjtObj.mjOBJ_TENDON, "ntendon"),
}

#: Name, problem, hint.
Mistake = tuple[str, str, str]


@dataclass(frozen=True)
class RandomizedParameter:
    """One parameter and the range of its draws."""

    name: str  # as written, such as ``geom_friction.floor``
    field: str  # of MjModel
    rows: tuple[int, ...]  # of the field; empty for an option of the whole model
    component: int | None  # index within a row; None for all
    way: str  # one of ``WAYS``
    low: float  # smallest draw
    high: float  # largest draw

    @property
    def index(self) -> tuple[Any, ...]:
        """Index of the parameter's numbers in the field."""
        rows = (list(self.rows),) if self.rows else ()
        return rows if self.component is None else (*rows, self.component)

    def applied(self, own: Floats, number: Any) -> Any:
        """The parameter's numbers, from the model's ``own`` and the drawn ``number``."""
        return {"scale": own * number, "add": own + number, "set": own * 0.0 + number}[self.way]

    def draw(self, own: Floats, rng: np.random.Generator) -> Floats:
        """Draw numbers that replace the model's ``own``, of the same shape."""
        shape = own.shape[:1] + (1,) * (own.ndim - 1) if self.way == "scale" and self.rows else own.shape
        if self.way == "scale" and not self.rows:
            shape = ()
        drawn: Floats = self.applied(own, rng.uniform(self.low, self.high, shape))
        return drawn


class Randomizer:
    """Draws the parameters of a batch's simulations.

    A body's inertia scales with its mass, as if its density changed, unless ``body_inertia`` has its own
    range. Constants that MuJoCo derives from the model are recomputed (``mj_setConst``).

    Args:
        model: the MjModel with the nominal parameters.
        batch: a ``mujoco.batch.Batch`` of it, in which each simulation gets its own fields.
        ranges: from ``read_ranges``.
    """

    def __init__(self, model: Any, batch: Any, ranges: Sequence[RandomizedParameter]):
        self._ranges, self._batch = ranges, batch
        names = dict.fromkeys(r.field for r in ranges)
        self._with_inertia = "body_mass" in names and "body_inertia" not in names
        if self._with_inertia:
            names["body_inertia"] = None
        self._own = {name: np.array(_field(model, name)) for name in names}
        self._fields: dict[str, Floats] = {
            name: batch.expand(name).reshape(batch.nsim, *own.shape) for name, own in self._own.items()
        }
        inputs = mujoco.MjModel._setconst_inputs
        self._derives = any(name in inputs or name.startswith("opt.") for name in names)

    def draw(self, rows: NDArray[np.intp], rngs: Sequence[np.random.Generator]) -> None:
        """Draw new parameters for the simulations ``rows`` from ``rngs``, one generator for each."""
        for row, rng in zip(rows, rngs, strict=True):
            for name, own in self._own.items():
                self._fields[name][row] = own
            for r in self._ranges:
                values = self._fields[r.field][row]
                values[r.index] = r.draw(self._own[r.field][r.index], rng)
            if self._with_inertia:
                self._scale_inertia(row)
        if self._derives:
            self._batch.set_const(rows)

    def field(self, name: str) -> Floats | None:
        """The live ``[N, ...]`` array of a field of MjModel; ``None`` if the field is not randomized."""
        return self._fields.get(name)

    def get_state(self) -> dict[str, Floats]:
        """Copies of the fields, ``[N, ...]`` each."""
        return {name: values.copy() for name, values in self._fields.items()}

    def set_state(self, state: Mapping[str, Floats]) -> None:
        """Continue from :meth:`get_state` of another batch."""
        for name, values in self._fields.items():
            values[:] = state[name]
        if self._derives:
            self._batch.set_const()

    def values(self) -> dict[str, Floats]:
        """A copy of the current parameters: name as written -> ``[N, ...]``."""
        return {r.name: self._fields[r.field][(slice(None), *r.index)].copy() for r in self._ranges}

    def _scale_inertia(self, row: np.intp) -> None:
        own, mass = self._own["body_mass"], self._fields["body_mass"][row]
        factor = np.divide(mass, own, out=np.ones_like(own), where=own > 0)
        self._fields["body_inertia"][row] *= factor[:, None]


def read_ranges(env_id: str, model: Any, written: Mapping[str, Any]) -> list[RandomizedParameter]:
    """Parse ranges, whose names may be nested as TOML nests dotted keys.

    Raises:
        InvalidRandomization: lists every mistake, each with the nearest right name.
    """
    ranges: list[RandomizedParameter] = []
    mistakes: list[Mistake] = []
    for name, value in _flat(written):
        try:
            way, low, high = _bounds(value)
            field, rows, component = _place(model, name)
            ranges.append(RandomizedParameter(name, field, rows, component, way, low, high))
            _check_sign(model, ranges[-1])
        except Unfit as unfit:
            mistakes.append((name, unfit.problem, unfit.hint))
    if mistakes:
        raise InvalidRandomization(env_id, mistakes)
    return ranges


def _flat(written: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    ranges: list[tuple[str, Any]] = []
    for key, value in written.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not any(way in value for way in WAYS):
            ranges += _flat(value, f"{name}.")
        else:
            ranges.append((name, value))
    return ranges


def _bounds(value: Any) -> tuple[str, float, float]:
    way, pair = "scale", value
    if isinstance(value, Mapping):
        if len(value) != 1 or next(iter(value)) not in WAYS:
            raise Unfit(f"one of {', '.join(WAYS)} is expected, got {', '.join(value) or 'nothing'}")
        ((way, pair),) = value.items()
    numbers = isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_number, pair))
    if not numbers or not pair[0] <= pair[1]:
        raise Unfit(
            f"a range [low, high] with low <= high is expected, got {pair!r}",
            "[0.8, 1.2] scales, { add = [-0.1, 0.1] } adds, { set = [0.5, 1.0] } replaces",
        )
    if way == "scale" and pair[0] < 0:
        raise Unfit(f"scales are at least 0, got {pair!r}", "{ add = [low, high] } adds")
    return way, float(pair[0]), float(pair[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _place(model: Any, name: str) -> tuple[str, tuple[int, ...], int | None]:
    """Field, rows and component of a parameter's name. Names of elements may contain dots."""
    parts = name.split(".")
    taken = 2 if parts[0] == "opt" else 1
    field, rest = ".".join(parts[:taken]), parts[taken:]
    if field not in FIELDS:
        raise Unfit(f"there is no parameter '{field}' to randomize", _nearest(field, FIELDS))
    own = _field(model, field)
    component: int | None = None
    if rest and rest[-1].isdecimal() and ".".join(rest) not in _elements(model, FIELDS[field]):
        component = int(rest.pop())
        width = own.shape[-1] if own.ndim == (2 if FIELDS[field] else 1) else 1
        if component >= width:
            raise Unfit(f"'{field}' has {width} numbers, counted from 0; there is no {component}")
        component = component if width > 1 else None
    if not FIELDS[field]:
        if rest:
            raise Unfit(f"'{field}' belongs to the whole model, there is no '{'.'.join(rest)}' of it")
        return field, (), component
    if own.shape[0] == 0:
        raise Unfit(f"the model has no {FIELDS[field]}")
    return field, _rows(model, field, ".".join(rest)), component


def _rows(model: Any, field: str, element: str) -> tuple[int, ...]:
    kind = FIELDS[field]
    if element:
        elements = _elements(model, kind)
        if element not in elements:
            what = "joint" if kind == "dof" else kind
            raise Unfit(f"the model has no {what} '{element}'", _nearest(element, elements))
        return elements[element]
    first = 1 if kind == "body" else 0  # not the world
    return tuple(range(first, len(_field(model, field))))


def _elements(model: Any, kind: str) -> dict[str, tuple[int, ...]]:
    """Name of an element -> its rows of a field; a joint has one for each degree of freedom."""
    if not kind:
        return {}
    if kind == "dof":
        starts = [*model.jnt_dofadr.tolist(), model.nv]
        joints = _elements(model, "joint")
        return {name: tuple(range(starts[row], starts[row + 1])) for name, (row,) in joints.items()}
    object_type, count = _OBJECTS[kind]
    names = [mujoco.mj_id2name(model, object_type, row) for row in range(getattr(model, count))]
    return {name: (row,) for row, name in enumerate(names) if name}


def _check_sign(model: Any, r: RandomizedParameter) -> None:
    own = np.asarray(_field(model, r.field)[r.index])
    least = r.applied(own, r.low)[own > 0] if r.field in _ABOVE_ZERO else r.applied(own, r.low)
    if r.field in _ABOVE_ZERO and (least <= 0).any():
        raise Unfit(f"it would reach {least.min():g}, but has to stay above 0")
    if r.field in _NOT_NEGATIVE and (least < 0).any():
        raise Unfit(f"it would reach {least.min():g}, but cannot be negative")


def _field(model: Any, name: str) -> NDArray[Any]:
    holder = model.opt if name.startswith("opt.") else model
    return np.atleast_1d(np.asarray(getattr(holder, name.removeprefix("opt."))))


def _nearest(word: str, names: Mapping[str, Any]) -> str:
    near = nearest(word, names, 0.5)
    listed = ", ".join(sorted(names))
    return f"did you mean '{near}'?" if near else (f"there is {listed}" if names else "it has no names")
