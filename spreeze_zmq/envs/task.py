"""Native tasks: environments written as array arithmetic, which steps the whole batch without a loop."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import Space
from gymnasium.utils import seeding
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment, StateNotKept, definition_of
from spreeze_zmq.base.kept_state import Keeper, Maker
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.door import WrongReturn, fitting
from spreeze_zmq.envs.failures import close
from spreeze_zmq.envs.infos import Begun, Options, Seeds, Step
from spreeze_zmq.envs.kept import keep_task, put_task_back

log = logging.getLogger("spreeze.envs")

#: Some environments of the batch: a slice or their numbers.
Rows = slice | NDArray[np.intp]
_ALL = slice(None)
#: A generator for each environment that begins an episode.
Rngs = Sequence[np.random.Generator]
#: Reward ``[N]``, terminated ``[N]`` and the info's parts ``[N, ...]``.
Outcome = tuple[NDArray[Any], NDArray[np.bool_], dict[str, NDArray[Any]]]


class Task(ABC):
    """One kind of environment, ``N`` of them as arrays.

    The constructor takes the environment's keyword arguments. ``NativeBatch`` calls ``allocate`` once,
    ``begin`` at the start of episodes, and for each step ``advance``, ``outcome`` and ``observe``. The last
    two may return the task's state itself or views of it, which ``NativeBatch`` copies.

    Attributes:
        backend: name of the engine.
        max_episode_steps: steps after which an episode is truncated, unless the user sets another limit.
        observation_space: of one environment; set by ``allocate``.
        action_space: of one environment; set by ``allocate``.
        num_threads: threads that ``advance`` may use.
        stepping: the environments that ``advance`` must step; ``None`` for all. It may skip the others.
        went_back: those of them that the engine has put back to a start of its own, as ``advance`` found.
    """

    backend: ClassVar[str] = "numpy"
    num_threads: int = 1
    stepping: NDArray[np.intp] | None = None
    went_back: Sequence[int] = ()
    max_episode_steps: ClassVar[int | None] = None
    observation_space: Space[Any]
    action_space: Space[Any]

    def randomize(self, ranges: Mapping[str, Any]) -> None:
        """Set the ranges from which each reset draws model parameters; called before ``allocate``.

        Raises:
            InvalidEnvironment: the task has no such model.
        """
        raise InvalidEnvironment("only MuJoCo tasks have model parameters to randomize")

    @abstractmethod
    def allocate(self, num_envs: int) -> None:
        """Allocate the state of ``num_envs`` environments, and set the spaces."""

    @abstractmethod
    def begin(self, rows: NDArray[np.intp], rngs: Rngs, options: Options) -> None:
        """Start episodes in ``rows``, from states drawn by ``rngs``, one generator for each row."""

    @abstractmethod
    def advance(self, action: NDArray[Any]) -> None:
        """Step all environments; ``action`` is ``[N, *action]``."""

    @abstractmethod
    def outcome(self, action: NDArray[Any]) -> Outcome:
        """Reward, terminated and info of the step just made by ``action`` ``[N, *action]``."""

    @abstractmethod
    def observe(self, rows: Rows) -> NDArray[Any]:
        """Observations ``[len(rows), *obs]`` of the current state of ``rows``."""

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Info ``[len(rows), ...]`` about the current state of ``rows``, after a reset and after a step."""
        return {}

    def get_state(self) -> dict[str, Any]:
        """What the next steps follow from, as plain values: by default all attributes that are arrays,
        numbers, texts, or lists and maps of these. Raises StateNotKept.
        """
        return keep_task(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`get_state` of another such task. Raises StateNotKept."""
        put_task_back(self, state)

    def close(self) -> None:  # noqa: B027
        """Free what ``allocate`` allocated, if needed."""


class NativeBatch(BatchedEnv):
    """``num_envs`` environments of one task.

    Args:
        env_id: name in messages.
        task: the task; its state is allocated here.
        num_envs: number of environments.
        max_episode_steps: the time limit; ``None`` for none.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether ``step`` returns the task's info; ``"final"`` only in steps that end an episode.
    """

    task: Task

    def __init__(
        self,
        env_id: str,
        task: Task,
        num_envs: int,
        max_episode_steps: int | None,
        seed: int,
        step_info: bool | Literal["final"],
    ):
        self.task = task
        task.allocate(num_envs)
        spaces = task.observation_space, task.action_space
        super().__init__(env_id, num_envs, *spaces, max_episode_steps, seed)
        self.backend = task.backend
        self._obs_dtype, self._obs_shape = np.dtype(spaces[0].dtype), spaces[0].shape or ()
        self._step_info = step_info
        self._rngs = [np.random.default_rng(0)] * num_envs
        self._all, self._none = np.ones(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        self._all.flags.writeable = False

    def _advance(self, actions: NDArray[Any]) -> Step:
        try:
            return self._step_checked(actions)
        except EnvironmentFailure:
            raise
        except BaseException as error:  # of the whole batch: nothing says which environment it came from
            self._raised(self._all_rows.tolist(), "step", error)
            assert self._last_obs is not None
            zeros = np.zeros(self.num_envs)
            return self._last_obs.copy(), zeros, self._none.copy(), self._none, {}

    def _step_checked(self, actions: NDArray[Any]) -> Step:
        task = self.task
        task.stepping = self._stepping
        try:
            task.advance(actions)
        except RuntimeError as error:
            failed = getattr(error, "ids", None)  # MuJoCo names the simulations that failed
            if failed is None:
                raise
            for row in failed.tolist():
                self._raised(row, "step", error)
        for row in sorted(set(task.went_back) - self._failed):
            self._fail(row, f"went on although {task.backend} has reset its simulation", mild=True)
        reward, terminated, parts = task.outcome(actions)
        obs = np.array(self._fitting(task.observe(_ALL), self.num_envs))
        reward, terminated = np.array(reward, np.float64), np.array(terminated, np.bool_)
        if not reward.shape == terminated.shape == self._all.shape:
            shapes = f"rewards of shape {reward.shape} and terminated of shape {terminated.shape}"
            raise WrongReturn(f"{shapes}, expected {self._all.shape} of both")
        info: dict[str, Any] = {}
        if self._step_info is True or (
            self._step_info and (terminated | (self._length >= self._limit)).any()
        ):
            for name, value in {**task.state_info(_ALL), **parts}.items():
                if isinstance(value, np.ndarray) and value.shape[:1] == self._all.shape:
                    info[name], info[f"_{name}"] = value.copy(), self._all
        return obs, reward, terminated, self._none, info

    def _restart(self, rows: NDArray[np.intp], seeds: Seeds, options: Options) -> Begun:
        while True:
            for row, seed in zip(rows, seeds, strict=True):
                if seed is not None:
                    self._rngs[row] = seeding.np_random(seed)[0]
            try:
                self.task.begin(rows, [self._rngs[row] for row in rows], options)
                return self._fitting(self.task.observe(rows), len(rows)), self._reset_info(rows)
            except BaseException as error:
                self._raised(rows.tolist(), "reset", error)
                seeds = [self._repair(row) for row in rows.tolist()]
                self._failed.difference_update(rows.tolist())

    def _fitting(self, obs: NDArray[Any], num: int) -> NDArray[Any]:
        """The task's observations of ``num`` environments. Raises WrongReturn."""
        dtype, shape = self._obs_dtype, (num, *self._obs_shape)
        if obs.__class__ is np.ndarray and obs.dtype is dtype and obs.shape == shape:
            return obs
        return fitting(obs, shape, dtype, "the observations")

    def _reset_info(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self._step_info is True:
            mask = np.zeros(self.num_envs, np.bool_)
            mask[rows] = True
            for name, value in self.task.state_info(rows).items():
                whole = np.zeros((self.num_envs, *value.shape[1:]), value.dtype)
                whole[rows] = value
                info[name], info[f"_{name}"] = whole, mask
        return info

    def _keep(self) -> Any:
        return {"task": self.task.get_state(), "rngs": Keeper().keep(self._rngs, "its generators")}

    def _put_back(self, state: Any) -> None:
        self.task.set_state(state["task"])
        rngs = Maker().make(state["rngs"])
        if len(rngs) != self.num_envs:
            raise StateNotKept(f"it has {len(rngs)} generators for {self.num_envs} environments")
        self._rngs = rngs

    def _place(self, row: int, method: str) -> str:
        return definition_of(type(self.task))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the task's state; what its ``close`` raises is only logged."""
        if fault := close(self.task):
            self.close_fault = fault
            log.warning("%s: %s", self.env_id, fault)
