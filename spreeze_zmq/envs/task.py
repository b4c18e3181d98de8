"""An environment written over the whole batch, and the vector environment that drives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space
from gymnasium.utils import seeding
from numpy.typing import NDArray

from ..errors import InvalidEnvironment
from .batched import BatchedEnv, Step

#: The environments that a method is asked about: all of them, or some by number.
Rows = slice | NDArray[np.intp]

_ALL = slice(None)


class Task(ABC):
    """One kind of environment as array arithmetic over ``N`` of them.

    The constructor takes the environment's keyword arguments. ``NativeEnv`` calls ``allocate`` once,
    ``begin`` for what starts an episode, and for each step ``advance``, ``outcome``, ``observe``. These may
    return views of the task's state: ``NativeEnv`` copies them.

    Attributes:
        backend: name of the engine.
        max_episode_steps: steps after which an episode is truncated, unless the user says otherwise.
        observation_space: of one environment; set by ``allocate``.
        action_space: of one environment; set by ``allocate``.
        num_threads: threads that ``advance`` may use; what is array arithmetic alone has no use for more.
    """

    backend: ClassVar[str] = "numpy"
    num_threads: int = 1
    max_episode_steps: ClassVar[int | None] = None
    observation_space: Space[Any]
    action_space: Space[Any]

    def randomize(self, ranges: Mapping[str, Any]) -> None:
        """Take the ranges that parameters of the model are drawn from at each reset, before ``allocate``.

        Raises:
            InvalidEnvironment: there is no such model.
        """
        raise InvalidEnvironment("only MuJoCo tasks have model parameters to randomise")

    @abstractmethod
    def allocate(self, num_envs: int) -> None:
        """Make the state of ``num_envs`` environments."""

    @abstractmethod
    def begin(
        self, rows: NDArray[np.intp], rngs: Sequence[np.random.Generator], options: dict[str, Any] | None
    ) -> None:
        """Put the environments ``rows`` into the first state of an episode, each by its own generator."""

    @abstractmethod
    def advance(self, action: NDArray[Any]) -> None:
        """Step all environments; ``action`` is ``[N, *action]``."""

    @abstractmethod
    def outcome(
        self, action: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.bool_], dict[str, NDArray[Any]]]:
        """Reward ``[N]``, terminated ``[N]`` and the info's parts ``[N, ...]`` of the step just made."""

    @abstractmethod
    def observe(self, rows: Rows) -> NDArray[Any]:
        """The observations of ``rows`` in their present state."""

    def state_info(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """What the info says of the present state of ``rows``, after a reset as after a step."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Let go of what ``allocate`` took, if that needs doing."""


class NativeEnv(BatchedEnv):
    """``num_envs`` environments of one task, stepped together with no loop over them.

    Args:
        env_id: name for messages.
        task: the task; its state is allocated here.
        num_envs: how many.
        max_episode_steps: the time limit; ``None`` for none.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether ``step`` gives the task's info.
    """

    def __init__(
        self,
        env_id: str,
        task: Task,
        num_envs: int,
        max_episode_steps: int | None,
        seed: int,
        step_info: bool,
    ):
        self.task = task
        task.allocate(num_envs)
        spaces = task.observation_space, task.action_space
        super().__init__(env_id, num_envs, *spaces, max_episode_steps, seed)
        self.backend = task.backend
        self._step_info = step_info
        self._rngs = [np.random.default_rng(0)] * num_envs
        self._all, self._none = np.ones(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        self._all.flags.writeable = False

    def _advance(self, actions: NDArray[Any]) -> Step:
        task = self.task
        try:
            task.advance(actions)
        except RuntimeError as error:
            failed = getattr(error, "ids", None)  # MuJoCo's error in some simulations
            if failed is None:
                raise
            for row in failed.tolist():
                self._raised(row, "step", error)
        reward, terminated, parts = task.outcome(actions)
        info: dict[str, Any] = {}
        if self._step_info:
            for name, value in {**task.state_info(_ALL), **parts}.items():
                info[name], info[f"_{name}"] = _owned(value), self._all
        obs = _owned(task.observe(_ALL))
        return obs, np.array(reward, np.float64), np.array(terminated, np.bool_), self._none, info

    def _restart(
        self, rows: NDArray[np.intp], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        for row, seed in zip(rows, seeds, strict=True):
            if seed is not None:
                self._rngs[row] = seeding.np_random(seed)[0]
        self.task.begin(rows, [self._rngs[row] for row in rows], options)
        info: dict[str, Any] = {}
        if self._step_info:
            mask = np.zeros(self.num_envs, np.bool_)
            mask[rows] = True
            for name, value in self.task.state_info(rows).items():
                whole = np.zeros((self.num_envs, *value.shape[1:]), value.dtype)
                whole[rows] = value
                info[name], info[f"_{name}"] = whole, mask
        return self.task.observe(rows), info

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the task's state."""
        self.task.close()


def _owned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy where it is a view of something that will change."""
    return array if array.flags.owndata else array.copy()
