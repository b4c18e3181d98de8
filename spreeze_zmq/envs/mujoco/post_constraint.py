"""Computes the fields of ``mj_rnePostConstraint``, above all contact forces, for each simulation.

A step does not compute them. A sensor would compute them too early: with the Runge-Kutta integrator in the
first of four stages, while the contacts are those of the last. Two ways remain. Forces on bodies
(``cfrc_ext``) are computed within the step, by an engine plugin that consists of MuJoCo's own functions: the
engine advances a plugin's state at the end of a substep, and that call is ``mj_rnePostConstraint``. Other
fields, and MuJoCo versions with an unknown plugin layout, need a copy of each simulation after the step.
"""

from __future__ import annotations

import copy
import ctypes
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Fields of MjData that ``mj_rnePostConstraint`` computes.
FIELDS = ("cacc", "cfrc_ext", "cfrc_int")

#: The plugin's name among the engine's.
PLUGIN = "spreeze_zmq.post_constraint"

#: Major versions of MuJoCo whose ``mjpPlugin`` is laid out as ``_Plugin`` below.
KNOWN_VERSIONS = (4,)

_CALLBACKS = (
    *("nstate", "nsensordata", "init", "destroy", "copy", "reset", "compute", "advance", "visualize"),
    *("actuator_act_dot", "sdf_distance", "sdf_gradient", "sdf_staticdistance", "sdf_attribute", "sdf_aabb"),
)


class _Plugin(ctypes.Structure):
    """``mjpPlugin`` of ``mujoco/mjplugin.h``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("nattribute", ctypes.c_int),
        ("attributes", ctypes.c_void_p),
        ("capabilityflags", ctypes.c_int),
        ("needstage", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in _CALLBACKS),
    )


#: Called when a model is compiled: the plugin has no state.
_no_state = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(lambda model, instance: 0)


@cache
def register() -> bool:
    """Register the plugin with the engine of this process; returns whether that worked.

    A C function may be called with more arguments than it takes: ``mj_rnePostConstraint(m, d)`` ignores the
    instance's number, and ``mj_version()`` serves as the callback that does nothing.
    """
    if int(mujoco.__version__.partition(".")[0]) not in KNOWN_VERSIONS:
        return False
    passive = 1 << 2  # mjPLUGIN_PASSIVE: some kind is required; no element refers to the plugin
    try:
        engine = ctypes.CDLL(str(_engine_library()))  # loaded already: this is the same one
        idle, post = (
            ctypes.cast(getattr(engine, name), ctypes.c_void_p).value
            for name in ("mj_version", "mj_rnePostConstraint")
        )
        plugin = _Plugin(name=PLUGIN.encode(), capabilityflags=passive, init=idle, reset=idle, compute=idle)
        plugin.nstate, plugin.advance = ctypes.cast(_no_state, ctypes.c_void_p), post
        engine.mjp_registerPlugin.argtypes = [ctypes.POINTER(_Plugin)]
        engine.mjp_registerPlugin(ctypes.byref(plugin))  # the engine copies it
    except (OSError, AttributeError, StopIteration):
        return False
    return True


def compile_with_plugin(spec: Any) -> Any | None:
    """Add the plugin to ``spec`` and compile it: ``mj_rnePostConstraint`` then ends each substep.

    Returns the MjModel, or ``None`` if the plugin cannot be used.
    """
    if not register():
        return None
    try:
        spec.activate_plugin(PLUGIN)
        spec.add_plugin(name=PLUGIN, plugin_name=PLUGIN, active=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compiling without the plugin gave the same warnings
            return spec.compile()
    except (AttributeError, TypeError, ValueError):
        return None


def forces_at_reset(model: Any) -> bool:
    """Whether ``mj_forward`` computes the fields too, as it does if a sensor of the model needs them."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return bool(data.flg_rnepost)


class AfterStep:
    """Computes the fields after a step, on a copy of each simulation.

    Args:
        model: of the batch.
        batch: a persistent ``mujoco.batch.Batch`` of it, which keeps the contacts of a step.
        fields: which of ``FIELDS``.

    Attributes:
        values: field -> ``[N, ...]`` float64, overwritten by each call.
    """

    def __init__(self, model: Any, batch: Any, fields: tuple[str, ...]):
        self._model, self._batch, self._data = copy.copy(model), batch, mujoco.MjData(model)
        self._raw = {name: batch.bind(name) for name in fields}
        self._ncon, self._ne = batch.bind("ncon"), batch.bind("ne")
        self._applied = batch.bind("xfrc_applied")
        self._only_contacts = fields == ("cfrc_ext",)
        self.values: dict[str, Floats] = {name: np.zeros_like(raw) for name, raw in self._raw.items()}

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Copy the fields after ``mj_forward``: zeros, unless a sensor needs them."""
        for name, values in self.values.items():
            values[rows] = self._raw[name][rows]

    def compute(self, rows: NDArray[np.intp] | None = None) -> None:
        """Run ``mj_rnePostConstraint`` on the state after the step, of all simulations or of ``rows``."""
        if rows is None:
            rows = np.arange(self._batch.nsim)
        if self._only_contacts:  # without contact or applied force they are zero
            self.values["cfrc_ext"].fill(0.0)
            touched = (self._ncon + self._ne).ravel() != 0
            rows = rows[(touched | self._applied.any(axis=(1, 2)))[rows]]
        data, model, batch = self._data, self._model, self._batch
        drawn = batch.expanded("opt.gravity")  # of what is read of a model, all that can be randomized
        for row in rows:
            batch.get_data(row, data)
            if drawn is not None:
                model.opt.gravity[:] = drawn[row]
            mujoco.mj_rnePostConstraint(model, data)
            for name, values in self.values.items():
                values[row] = getattr(data, name)


def _engine_library() -> Path:
    """The shared library of the installed ``mujoco`` package."""
    folder = Path(mujoco.__file__).parent
    patterns = ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll")
    return next(path for pattern in patterns for path in sorted(folder.glob(pattern)))
