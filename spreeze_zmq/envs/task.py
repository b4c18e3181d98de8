"""The interface of native tasks: environments written as array arithmetic over a whole batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment

#: Some environments of the batch: a slice or their numbers.
Rows = slice | NDArray[np.intp]
#: Reward ``[N]``, terminated ``[N]`` and the info's parts ``[N, ...]``.
Outcome = tuple[NDArray[Any], NDArray[np.bool_], dict[str, NDArray[Any]]]


class Task(ABC):
    """One kind of environment, ``N`` of them as arrays.

    The constructor takes the environment's keyword arguments. ``NativeBatch`` calls ``allocate`` once,
    ``begin`` at the start of episodes, and for each step ``advance``, ``outcome`` and ``observe``. The last
    two may return views of the task's state, which ``NativeBatch`` copies.

    Attributes:
        backend: name of the engine.
        max_episode_steps: steps after which an episode is truncated, unless the user sets another limit.
        observation_space: of one environment; set by ``allocate``.
        action_space: of one environment; set by ``allocate``.
        num_threads: threads that ``advance`` may use.
        stepping: the environments that ``advance`` must step; ``None`` for all. It may skip the others.
    """

    backend: ClassVar[str] = "numpy"
    num_threads: int = 1
    stepping: NDArray[np.intp] | None = None
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
    def begin(
        self, rows: NDArray[np.intp], rngs: Sequence[np.random.Generator], options: dict[str, Any] | None
    ) -> None:
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

    def close(self) -> None:  # noqa: B027
        """Free what ``allocate`` allocated, if needed."""
