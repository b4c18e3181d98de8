"""One environment to show: its steps, its pictures or its MuJoCo model, and an episode of a policy in it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.base.frames import has_channels_last
from spreeze_zmq.base.importing import loaded
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.failures import close
from spreeze_zmq.evaluation.evaluation import as_text
from spreeze_zmq.plan.plan import PAGE
from spreeze_zmq.policy import Played, Policy, played, without_noise

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv

#: Steps a second of an environment that does not define its rate.
DEFAULT_STEPS_PER_S = 30.0


@dataclass
class Stage:
    """A batch of one environment, and its picture: until :meth:`begin` that of the last state, which the
    environment itself leaves in the step that ends an episode.

    Attributes:
        env: the batch from ``envs.remade``.
        step_s: simulated seconds of one step.
        draw: returns the current picture ``[height, width, 3]`` uint8; None if there are no pictures.
        model: the MjModel of a MuJoCo environment, which the browser draws itself; else None.
        qpos: returns the positions ``[nq]`` of that model.
        why_not: why nothing can be shown; empty if something can.
        obs: the newest observation.
    """

    env: BatchedEnv
    step_s: float = 1.0 / DEFAULT_STEPS_PER_S
    draw: Callable[[], NDArray[np.uint8]] | None = None
    model: Any = None
    qpos: Callable[[], NDArray[np.float64]] | None = None
    why_not: str = ""
    obs: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._last: Any = None
        self._live = live = self.draw or self.qpos
        self.draw = self.draw and self._shown
        self.qpos = self.qpos and self._shown
        if live is not None:
            self.env.before_reset = self._keep_last

    def _shown(self) -> Any:
        assert self._live is not None
        return self._live() if self._last is None else self._last

    def _keep_last(self) -> None:
        self._last = self._shown()

    def begin(self, seed: int) -> tuple[NDArray[Any], dict[str, Any]]:
        """Reset the environment, for an episode that is shown; returns what its reset does."""
        self._last = None
        obs, info = self.env.reset(seed=seed)
        self.obs = obs[0]
        return obs, info

    def see(self, step: Played) -> None:
        """Note what a step has led to, as :func:`played` gives it."""
        self.obs = (step.info["final_obs"] if step.ended[0] else step.obs)[0]


def open_stage(spec: EnvironmentSpec, number: int = PAGE) -> Stage:
    """The stage of an environment: shows its MuJoCo state, else its pictures, else images that it observes.

    Args:
        spec: of the environment.
        number: of the environment among the run's.

    Raises:
        SpreezeError: the environment cannot be made.
    """
    env = envs.remade(spec, 1, step_info=False, first_index=number)
    if env.backend == "mujoco":
        task: Any = env.task
        return Stage(env, float(task.dt), model=task.model, qpos=lambda: task.qpos[0].copy())
    own: Any = _unwrapped(env) if env.envs else None
    if _is_simulated(own):
        step_s = positive(getattr(own, "dt", None)) or 1.0 / steps_per_s(env.metadata)
        return Stage(env, step_s, model=own.model, qpos=lambda: _unwrapped(env).data.qpos.copy())
    env.close()
    return _with_pictures(spec, number)


def steps_per_s(metadata: Mapping[str, Any]) -> float:
    """Steps of an environment in one simulated second, as its metadata have them."""
    return positive(metadata.get("render_fps")) or DEFAULT_STEPS_PER_S


def positive(stated: Any) -> float | None:
    """A number above 0 that an environment states; None where it states something else."""
    try:
        number = float(stated)
    except (OverflowError, TypeError, ValueError):
        return None
    return number if 0.0 < number < math.inf else None


def _is_simulated(own: Any) -> bool:
    """Whether an environment holds a model and the data of MuJoCo, under the names of Gymnasium's own."""
    mujoco: Any = loaded("mujoco")
    kinds = (("model", "MjModel"), ("data", "MjData"))
    return mujoco is not None and all(
        isinstance(getattr(own, name, None), getattr(mujoco, kind)) for name, kind in kinds
    )


def _unwrapped(env: BatchedEnv) -> Any:
    """The environment itself: another one after it has failed."""
    return env.envs[0].unwrapped


def _with_pictures(spec: EnvironmentSpec, number: int) -> Stage:
    env: Any = None
    try:
        drawn = replace(spec, kwargs={**spec.kwargs, "render_mode": "rgb_array"})
        env = envs.remade(drawn, 1, backend="gymnasium", step_info=False, first_index=number)
        env.reset(seed=0)
        rendered(env.render()[0])
    except Exception as error:  # a user's environment may raise anything
        if env is not None:
            close(env)  # it may hold what the next one with its number needs, such as a port
        first = error.__cause__  # another environment of the run was made: this one has another argument
        said = str(first if isinstance(first, InvalidEnvironment) else error)
        why_not = textwrap.shorten(said, 200, placeholder=" ...") or type(error).__name__
        return _with_observations(spec, number, why_not)
    return Stage(env, 1.0 / steps_per_s(env.metadata), draw=lambda: rendered(env.render()[0]))


def rendered(picture: Any) -> NDArray[np.uint8]:
    """What an environment's ``render`` gave, as ``[height, width, 3]`` uint8: grey ones and those with an
    alpha channel too.

    Raises:
        InputError: it is no picture of whole numbers; names what it is.
    """
    try:
        given = np.asarray(picture)
    except ValueError:  # lists of different lengths
        given = np.empty(0, object)
    image = given[..., None] if given.ndim == 2 else given
    if given.dtype.kind not in "iu" or image.ndim != 3 or image.shape[-1] not in (1, 3, 4) or not image.size:
        what = f"{given.dtype} {given.shape}" if given.ndim and given.dtype != object else None
        raise InputError(
            f"render() gave {what or type(picture).__name__} and no picture: expected uint8 of 0 to 255, "
            "(height, width, 3)"
        )
    low, high = (0, 255) if image.dtype == np.uint8 else (image.min(), image.max())
    if low < 0 or high > 255:
        raise InputError(f"render() gave {image.dtype} of {low} to {high}: expected 0 to 255")
    image = image[..., :3] if image.shape[-1] > 1 else np.repeat(image, 3, axis=-1)
    return np.array(image, np.uint8, order="C")  # a copy: it may draw each picture in the same memory


def _with_observations(spec: EnvironmentSpec, number: int, why_not: str) -> Stage:
    env = envs.remade(spec, 1, step_info=False, first_index=number)
    if spec.obs_dtype != "uint8" or len(spec.obs_shape) not in (2, 3):
        why_not = why_not.removeprefix(f"{spec.id}: ")
        return Stage(env, why_not=f"{spec.id} has no picture to show: {why_not}")
    stage = Stage(env)
    stage.draw = lambda: picture_of(stage.obs)
    return stage


def picture_of(obs: NDArray[Any] | None) -> NDArray[np.uint8]:
    """An observed image, channels first or last, as ``[height, width, 3]``; from a stack the newest."""
    assert obs is not None
    image = obs if obs.ndim == 3 else obs[None]
    image = image if has_channels_last(image.shape) else np.moveaxis(image, 0, -1)
    if image.shape[-1] != 3:
        image = np.repeat(image[..., -1:], 3, axis=-1)
    return np.ascontiguousarray(image, np.uint8)


@dataclass
class ShownEpisode:
    """One deterministic episode.

    Attributes:
        total: return so far.
        steps: number of steps so far.
        broken: whether the environment failed before its end; the failure is logged.
        whole: whether it was played to its end.
    """

    stage: Stage
    policy: Policy
    seed: int
    total: float = 0.0
    steps: int = 0
    broken: bool = False
    whole: bool = False

    def moments(self) -> Iterator[None]:
        """Play, and yield before each step and after the last one, when the state can be shown: once more
        than there are steps. After a step in which the environment failed nothing can.
        """
        frames = self.policy.frame_stack()
        obs, info = self.stage.begin(self.seed)
        frames.begin(obs, info.get("action_mask"))
        yield
        for step in played(self.stage.env, frames, without_noise(self.policy)):
            self.broken = bool(step.failed[0])
            if self.broken:
                return
            self.total, self.steps = self.total + float(step.reward[0]), self.steps + 1
            self.whole = bool(step.ended[0])
            self.stage.see(step)
            yield
            if self.whole:
                return

    def said(self) -> str:
        """Its return and length, in words."""
        if self.broken:
            return f"broken after {self.steps} steps: the environment failed"
        return f"return {as_text(self.total)}, {self.steps} steps" + ", not to its end" * (not self.whole)
