"""Batches in one process, and the table of what makes them.

Another engine is its module, its row here and, where it needs a package, its extra in setup.cfg.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv


class Library(Protocol):
    """The module of an engine that has environments of its own, by name."""

    def why_not(self, env_id: str) -> str:
        """Why it cannot make this environment, in words; empty if it can."""

    def may_have_meant(self, env_id: str) -> bool:
        """Whether an unknown name resembles one of its environments."""

    def make(
        self, env_id: str, num_envs: int, batch_size: int, seed: int, kwargs: Mapping[str, Any]
    ) -> BatchedEnv:
        """A batch. Raises InvalidEnvironment."""


@dataclass(frozen=True)
class Engine:
    """What is known of an engine by its name.

    Attributes:
        name: as ``backend`` has it.
        native: it steps native tasks, a whole batch at once.
        one_by_one: it steps environments that are objects of their own, each with its own arguments.
        module: of this package, a :class:`Library`; empty for an engine without environments of its own.
        title: of the library.
        why: why it is preferred to Gymnasium's own environment, in words.
    """

    name: str
    native: bool = False
    one_by_one: bool = False
    module: str = ""
    title: str = ""
    why: str = ""

    def library(self) -> Library:
        """The module, which is imported at its first use."""
        return cast(Library, importlib.import_module(f"{__name__}.{self.module}"))


#: Fastest first.
ENGINES = {
    engine.name: engine
    for engine in (
        Engine("mujoco", native=True),
        Engine("numpy", native=True),
        Engine(
            "envpool",
            module="envpool_batch",
            title="EnvPool",
            why="EnvPool steps it in C++, Gymnasium in Python",
        ),
        Engine("gymnasium", one_by_one=True),
    )
}
LIBRARIES = tuple(engine for engine in ENGINES.values() if engine.module)


def engine_of(backend: str) -> Engine:
    """The engine of a batch; a task of the user's may name one that is not in the table."""
    return ENGINES.get(backend) or Engine(backend)
