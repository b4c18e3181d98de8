"""The base of tasks over an MJCF model, whose physics ``mujoco.batch.Batch`` steps for the whole batch."""

from __future__ import annotations

import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box
from mujoco.batch import Batch
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment, StateNotKept
from spreeze_zmq.envs.infos import Options
from spreeze_zmq.envs.mujoco import post_constraint
from spreeze_zmq.envs.mujoco.randomization import Floats, Randomizer, read_ranges
from spreeze_zmq.envs.task import Rngs, Task
from spreeze_zmq.envs.unstable import stop_clock

#: Of MuJoCo's warnings, those with which it resets a simulation.
_UNSTABLE = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)


@dataclass(eq=False)
class MujocoTask(Task):
    """Base of a task over an MJCF model. A user's task is a small dataclass::

        @dataclass(eq=False)
        class Reach(MujocoTask):
            xml_file: str = "reach.xml"          # in the folder of this module
            frame_skip: int = 5
            noise: float = 0.1                   # fields are keyword arguments
            max_episode_steps = 200
            derived = ("site_xpos",)             # computed fields of MjData that the task reads

            def initial_state(self, rng):
                return self.init_qpos + rng.uniform(-self.noise, self.noise, self.model.nq), self.init_qvel

            def observe(self, rows):
                return np.concatenate((self.qpos[rows], self.qvel[rows], self.site_xpos[rows, 0]), axis=1)

            def outcome(self, action):
                distance = np.linalg.norm(self.site_xpos[:, 0], axis=1)
                return -distance, distance > 2.0, {"distance": distance}

    A topology names it ``my_module:Reach``. Fields of MjData are live arrays ``[N, ...]``. As after
    ``mj_step``, ``derived`` fields describe the state before the last substep; after a reset, the new one.

    Attributes:
        mjcf: the model as text, in place of ``xml_file``.
        xml_file: the MJCF file: a path from ``.``, ``/`` or ``~``, a file in the folder of the task's module,
            or a model that comes with Gymnasium.
        frame_skip: physics steps in one step of the environment.
        derived: computed fields of MjData to bind as attributes. ``cfrc_ext``, ``cfrc_int`` and ``cacc`` are
            those of ``mj_rnePostConstraint`` after the step; the last two cost a copy of each simulation.
        num_envs: ``N``.
        model: the MjModel.
        batch: the ``mujoco.batch.Batch``.
        dt: seconds of one step.
        qpos: ``[N, nq]`` float64.
        qvel: ``[N, nv]`` float64.
        ctrl: ``[N, nu]`` float64.
        init_qpos: ``[nq]``, the model's ``qpos0``.
        init_qvel: ``[nv]`` zeros.
        randomizer: draws the models' parameters; its ``values()`` are the current ones.
    """

    backend: ClassVar[str] = "mujoco"
    derived: ClassVar[tuple[str, ...]] = ()
    mjcf: ClassVar[str] = ""

    xml_file: str = ""
    frame_skip: int = 1

    num_envs: int = field(init=False, repr=False)
    model: Any = field(init=False, repr=False)
    batch: Any = field(init=False, repr=False)
    dt: float = field(init=False, repr=False)
    qpos: Floats = field(init=False, repr=False)
    qvel: Floats = field(init=False, repr=False)
    ctrl: Floats = field(init=False, repr=False)
    init_qpos: Floats = field(init=False, repr=False)
    init_qvel: Floats = field(init=False, repr=False)
    randomizer: Randomizer | None = field(init=False, repr=False, default=None)
    _ranges: Mapping[str, Any] = field(init=False, repr=False, default_factory=dict)

    @abstractmethod
    def initial_state(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """``qpos`` ``[nq]`` and ``qvel`` ``[nv]`` at the start of an episode."""

    def fields(self) -> tuple[str, ...]:
        """The computed fields to bind; by default ``derived``."""
        return self.derived

    def prepare(self) -> None:
        """Look up elements of the model; called once, after the fields are bound."""

    def before(self) -> None:
        """Store the part of the state before a step that ``outcome`` needs."""

    def randomize(self, ranges: Mapping[str, Any]) -> None:
        """Set the ranges from which each reset draws model parameters; see ``randomization``."""
        self._ranges = ranges

    def parameter(self, name: str) -> NDArray[Any]:
        """A field of MjModel: ``[...]``, or ``[N, ...]`` if it is randomized."""
        own = None if self.randomizer is None else self.randomizer.field(name)
        value: NDArray[Any] = getattr(self.model, name) if own is None else own
        return value

    def load(self) -> tuple[Any, Any]:
        """Compile the model: its MjSpec and its MjModel. Raises InvalidEnvironment."""
        if self.mjcf:
            return _compile(lambda: mujoco.MjSpec.from_string(self.mjcf), "its mjcf")
        return load_model(find_model(self.xml_file, type(self)))

    def allocate(self, num_envs: int) -> None:
        """Load the model and bind its fields.

        Raises:
            InvalidEnvironment: the model's file is missing or cannot be compiled.
            InvalidRandomization: the model has no such parameters.
        """
        self.num_envs = num_envs
        stop_clock()
        spec, self.model = self.load()
        without_islands(self.model)
        self.init_qpos, self.init_qvel = self.model.qpos0.copy(), np.zeros(self.model.nv)
        self.dt = self.model.opt.timestep * self.frame_skip
        fields = self.fields()
        self.batch = self._make_batch(spec, tuple(n for n in fields if n in post_constraint.FIELDS))
        self.qpos, self.qvel, self.ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._unstable = self.batch.warning[:, _UNSTABLE, 1]
        if self._ranges:
            ranges = read_ranges(type(self).__name__, self.model, self._ranges)
            self.randomizer = Randomizer(self.model, self.batch, ranges)
        self._rest = self.batch.state[0].copy()  # the whole state of a simulation
        self._computed = bool(fields)
        for name in fields:
            if self._after_step is None or name not in post_constraint.FIELDS:
                setattr(self, name, self._bound(name))
        self.prepare()
        low, high = self.model.actuator_ctrlrange.astype(np.float32).T
        self.action_space = Box(low, high, dtype=np.float32)
        obs = self.observe(slice(0, 1))
        self.observation_space = Box(-np.inf, np.inf, obs.shape[1:], obs.dtype)
        self._never = np.zeros(num_envs, np.bool_)

    def begin(self, rows: NDArray[np.intp], rngs: Rngs, options: Options) -> None:
        """Reset the simulations ``rows`` and put them into their initial states."""
        if self.randomizer is not None:
            self.randomizer.draw(rows, rngs)
        self.batch.state[rows] = self._rest
        for row, rng in zip(rows, rngs, strict=True):
            self.qpos[row], self.qvel[row] = self.initial_state(rng)
        if self._computed:
            self.batch.forward(rows)
        if self._stale is not None:
            self._stale[rows] = 0.0
        elif self._after_step is not None:
            self._after_step.reset(rows)

    def advance(self, action: NDArray[Any]) -> None:
        """``frame_skip`` physics steps under one action."""
        self.before()
        self.ctrl[:] = action
        self._unstable[:] = 0
        try:
            self.batch.step(self.stepping, nstep=self.frame_skip)
        finally:  # those that raise keep their state, the others have stepped
            self.went_back = self._gone_back()
            if self._after_step is not None:
                self._after_step.compute(self.stepping)

    def _gone_back(self) -> list[int]:
        """The simulations that MuJoCo found unstable and reset in this step."""
        if not np.count_nonzero(self._unstable):
            return []
        resets = not self.model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET
        return np.flatnonzero(self._unstable.any(axis=1)).tolist() if resets else []

    def never(self) -> NDArray[np.bool_]:
        """``terminated`` ``[N]`` of a task without a terminal state."""
        return self._never

    def get_state(self) -> dict[str, Any]:
        """The whole state of each simulation (time, positions, velocities, controls, the solver's warm
        start), the drawn parameters and the task's own attributes, computed fields among them. Raises
        StateNotKept.
        """
        if self.model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
            raise StateNotKept("its model lets bodies sleep")
        drawn = {} if self.randomizer is None else self.randomizer.get_state()
        return {"simulations": self.batch.state.copy(), "drawn": drawn, "task": super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`get_state` of another such task. Raises StateNotKept."""
        if state["simulations"].shape != self.batch.state.shape:
            raise StateNotKept("it is of another model")
        if self.randomizer is not None:
            self.randomizer.set_state(state["drawn"])
        super().set_state(state["task"])
        self.batch.state[:] = state["simulations"]

    def close(self) -> None:
        """Free the simulations."""
        self.__dict__.pop("batch", None)

    def _bound(self, name: str) -> NDArray[Any]:
        shape = getattr(self.batch._data, name).shape
        if 0 in shape:  # such as the tendons of a model without tendons: nothing to bind
            return np.zeros((self.num_envs, *shape))
        array: NDArray[Any] = self.batch.bind(name)
        return array

    def _make_batch(self, spec: Any, post: tuple[str, ...]) -> Any:
        """Make the simulations; the task reads the fields ``post`` of ``mj_rnePostConstraint``."""
        self._after_step: post_constraint.AfterStep | None = None
        self._stale: Floats | None = None  # [N, nbody, 6]: forces that a reset must clear
        if not post:
            return Batch(self.model, self.num_envs, nthread=self.num_threads)
        equipped = post_constraint.compile_with_plugin(spec) if post == ("cfrc_ext",) else None
        if equipped is not None:
            without_islands(equipped)
            batch = Batch(equipped, self.num_envs, nthread=self.num_threads)
            if not post_constraint.forces_at_reset(self.model):
                self._stale = batch.bind("cfrc_ext")  # a reset would leave another simulation's forces
                self._stale.flags.writeable = True
            return batch
        batch = Batch(self.model, self.num_envs, nthread=self.num_threads, persistent=True)
        self._after_step = post_constraint.AfterStep(self.model, batch, post)
        for name, values in self._after_step.values.items():
            setattr(self, name, values)
        return batch


def without_islands(model: Any) -> None:
    """Switch off the search for constraint islands in a model with one kinematic tree.

    Such a model has at most one island: results are bit-identical, and a step takes 4 to 10 % less time.
    """
    sleeps = model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP  # sleeping needs the islands
    if model.ntree == 1 and not sleeps:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)


def find_model(xml_file: str, task: type) -> Path:
    """The path of a task's MJCF file.

    Raises:
        InvalidEnvironment: there is no such file; lists the paths searched.
    """
    if xml_file.startswith((".", "/", "~")):
        candidates = [Path(os.path.expanduser(xml_file))]
    else:
        module = getattr(sys.modules.get(task.__module__), "__file__", None)
        candidates = [Path(module).parent / xml_file] if module else []
        candidates.append(_gymnasium_models() / xml_file)
    for path in candidates:
        if path.is_file():
            return path
    searched = " and ".join(str(path) for path in candidates)
    raise InvalidEnvironment(f"there is no model file '{xml_file}' (searched {searched})")


def load_model(path: Path) -> tuple[Any, Any]:
    """Compile an MJCF file: its MjSpec and its MjModel.

    Raises:
        InvalidEnvironment: MuJoCo refuses it.
    """
    with warnings.catch_warnings():
        if path.parent == _gymnasium_models():  # the user cannot fix deprecations in Gymnasium's models
            warnings.simplefilter("ignore")
        return _compile(lambda: mujoco.MjSpec.from_file(str(path)), str(path))


def _compile(parse: Callable[[], Any], name: str) -> tuple[Any, Any]:
    try:
        spec = parse()
        return spec, spec.compile()
    except ValueError as error:
        raise InvalidEnvironment(f"MuJoCo cannot compile {name}: {' '.join(str(error).split())}") from error


def _gymnasium_models() -> Path:
    """Folder of Gymnasium's models; importing its environments would import a renderer."""
    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
