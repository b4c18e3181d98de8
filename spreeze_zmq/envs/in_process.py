"""Chooses the fastest engine that can step an environment, and makes batches with it in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines import ENGINES, LIBRARIES, engine_of
from spreeze_zmq.envs.numbering import NAME, has_number, numbered
from spreeze_zmq.envs.settings import theirs
from spreeze_zmq.envs.source import EnvironmentSource, find, near_registered
from spreeze_zmq.envs.task import Task

#: Names of an argument by which simulators are kept apart.
NUMBERS = ("worker_id", "port")
#: For those of which a process can have one alone.
A_PROCESS_EACH = (
    "components.sampler.workers = ENVS and components.evaluator.workers = EPISODES, in a script num_workers,"
    " give each a process of its own, where one process can have one alone"
)


@dataclass(frozen=True)
class EngineChoice:
    """The engine that steps an environment, and what makes it."""

    env_id: str
    kwargs: Mapping[str, Any]  # of the environment's constructor
    backend: str  # its name in the table of engines
    reason: str  # why this engine, in words
    source: EnvironmentSource | None = None  # makes the environments; None for a library's own
    task: type[Task] | None = None  # the native task, if one is stepped

    @property
    def masked(self) -> bool:
        """Whether its engine reads action masks."""
        return self.source is not None and self.task is None

    @theirs()
    def make(
        self,
        num_envs: int,
        seed: int,
        batch_size: int | None = None,
        *,
        step_info: bool | Literal["final"] = False,
        randomize: Mapping[str, Any] | None = None,
        num_threads: int = 1,
        on_tick: Callable[[], None] = lambda: None,
        first_index: int = 0,
        action_mask: bool = False,
        step_cap: int | None = None,
    ) -> BatchedEnv:
        """Make a batch in this process; the arguments are those of ``envs.make``.

        Raises:
            InvalidEnvironment: it cannot be made; names the reason.
        """
        env: BatchedEnv
        if has_number(self.kwargs) and not engine_of(self.backend).one_by_one:
            raise InvalidEnvironment(
                f"{self.env_id}: env_kwargs has '{{index}}', but its engine '{self.backend}' makes all"
                " environments with the same arguments"
            )
        if self.source is None:
            library = engine_of(self.backend).library()
            env = library.make(self.env_id, num_envs, batch_size or num_envs, seed, self.kwargs)
        elif batch_size not in (None, num_envs):
            raise InvalidEnvironment(
                f"{self.env_id}: environments of one process step together, so batch_size is num_envs"
                f" ({num_envs}), not {batch_size} (num_workers spreads them over processes)"
            )
        elif self.task is not None:
            options = (step_info, randomize, num_threads)
            env = self.source.make_native(self.task, num_envs, self.kwargs, seed, *options)
        else:
            from spreeze_zmq.envs.engines.gymnasium_loop import GymnasiumLoop

            def make_one(row: int) -> gymnasium.Env[Any, Any]:
                return self.make_one(first_index + row, num_envs)

            env = GymnasiumLoop(self.env_id, make_one, num_envs, seed, step_info, on_tick, action_mask)
        if step_cap not in (None, env.episode_limit):  # else its environments end by themselves, or go on
            env.cut_after(int(step_cap))
        env.backend_reason = self.reason
        return env

    @theirs()
    def make_one(self, number: int, num_envs: int = 1) -> gymnasium.Env[Any, Any]:
        """One environment with its number, of ``num_envs`` in this process; raises as ``envs.make`` does."""
        assert self.source is not None
        try:
            return self.source.make_one(numbered(self.kwargs, number))
        except InvalidEnvironment as error:
            if has_number(self.kwargs) or number == 0:
                raise
            beside = (
                f"one alone was made before, but {num_envs} here and those of other processes get the same"
            )
            takes = self.source.parameters()
            name = next((each for each in NUMBERS if each in takes), "ARGUMENT")
            how = f'env_kwargs = {{ {name} = "{{{NAME}}}" }} gives each its number'
            raise InvalidEnvironment(f"{error} ({beside} arguments: {how}; {A_PROCESS_EACH})") from error


@theirs()
def choose(env_id: str, kwargs: Mapping[str, Any], backend: str = "auto") -> EngineChoice:
    """Choose the engine for an environment.

    Args:
        env_id: as for ``envs.make``.
        kwargs: arguments of its constructor.
        backend: the engine's name, or ``auto`` for the fastest that can step it.

    Raises:
        InvalidEnvironment: there is no such environment, or the backend cannot step it.
    """
    if backend != "auto" and ENGINES[backend].module:
        return EngineChoice(env_id, kwargs, backend, "asked for")
    try:
        source = find(env_id)
    except InvalidEnvironment as error:
        if backend != "auto" or not isinstance(env_id, str) or ":" in env_id:
            raise
        hints = []
        for engine in LIBRARIES:
            if not (reason := engine.library().why_not(env_id)):
                return EngineChoice(
                    env_id, kwargs, engine.name, f"Gymnasium does not have it, {engine.title} does"
                )
            if engine.library().may_have_meant(env_id) and not near_registered(env_id):
                hints.append(f"; {reason}")
        raise InvalidEnvironment(f"{error}{''.join(hints)}") from None
    task, reason = source.native(kwargs)
    if backend == "auto":
        if task is not None:
            return EngineChoice(env_id, kwargs, task.backend, reason, source, task)
        for engine in LIBRARIES if source.is_gymnasiums_own(kwargs) else ():
            if not engine.library().why_not(env_id):
                return EngineChoice(env_id, kwargs, engine.name, f"{reason}; {engine.why}")
        return EngineChoice(env_id, kwargs, "gymnasium", reason, source)
    if ENGINES[backend].one_by_one and not source.is_own_task:
        return EngineChoice(env_id, kwargs, backend, "asked for", source)
    if task is None or task.backend != backend:
        have = reason if task is None else f"its native task runs on {task.backend}"
        raise InvalidEnvironment(f"{env_id}: backend '{backend}' cannot do it: {have}")
    return EngineChoice(env_id, kwargs, backend, "asked for", source, task)
