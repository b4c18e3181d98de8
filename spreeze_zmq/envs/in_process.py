"""Chooses the fastest engine that can step an environment, and makes batches with it in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines.envpool_batch import EnvPoolBatch, may_have_meant, why_not
from spreeze_zmq.envs.numbering import HOW, has_number, numbered
from spreeze_zmq.envs.source import EnvironmentSource, find, near_registered
from spreeze_zmq.envs.task import Task
from spreeze_zmq.errors import InvalidEnvironment


@dataclass(frozen=True)
class Engine:
    """The engine that steps one kind of environment."""

    env_id: str
    kwargs: Mapping[str, Any]  # of the environment's constructor
    backend: str  # mujoco, numpy, envpool or gymnasium
    reason: str  # why this engine, in words
    source: EnvironmentSource | None = None  # makes the environments; None for EnvPool
    task: type[Task] | None = None  # the native task, if one is stepped

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
    ) -> BatchedEnv:
        """Make a batch in this process; the arguments are those of ``envs.make``.

        Raises:
            InvalidEnvironment: it cannot be made; names the reason.
        """
        env: BatchedEnv
        if has_number(self.kwargs) and (self.source is None or self.task is not None):
            raise InvalidEnvironment(
                f"{self.env_id}: env_kwargs has '{{index}}', but its engine '{self.backend}' makes all"
                " environments with the same arguments"
            )
        if self.source is None:
            env = EnvPoolBatch(self.env_id, num_envs, batch_size or num_envs, seed, self.kwargs)
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

            make_one = partial(self._make_one, num_envs, first_index)
            env = GymnasiumLoop(self.env_id, make_one, num_envs, seed, step_info, on_tick)
        env.backend_reason = self.reason
        return env

    def _make_one(self, num_envs: int, first_index: int, row: int) -> Any:
        """One environment with its number; ``envs.make`` says what is raised."""
        assert self.source is not None
        try:
            return self.source.make_one(numbered(self.kwargs, first_index + row))
        except InvalidEnvironment as error:
            if has_number(self.kwargs) or first_index + row == 0:
                raise
            beside = (
                f"one alone was made before, but {num_envs} here and those of other processes get the same"
            )
            raise InvalidEnvironment(f"{error} ({beside} arguments: {HOW})") from error


def choose(env_id: str, kwargs: Mapping[str, Any], backend: str = "auto") -> Engine:
    """Choose the engine for an environment.

    Args:
        env_id: as for ``envs.make``.
        kwargs: arguments of its constructor.
        backend: the engine's name, or ``auto`` for the fastest that can step it.

    Raises:
        InvalidEnvironment: there is no such environment, or the backend cannot step it.
    """
    if backend == "envpool":
        return Engine(env_id, kwargs, "envpool", "asked for")
    try:
        source = find(env_id)
    except InvalidEnvironment as error:
        if backend != "auto" or ":" in env_id:
            raise
        if reason := why_not(env_id):
            hint = f"; {reason}" if may_have_meant(env_id) and not near_registered(env_id) else ""
            raise InvalidEnvironment(f"{error}{hint}") from None
        return Engine(env_id, kwargs, "envpool", "Gymnasium does not have it, EnvPool does")
    task, reason = source.native(kwargs)
    if backend == "auto":
        if task is not None:
            return Engine(env_id, kwargs, task.backend, reason, source, task)
        if source.is_gymnasiums_own(kwargs) and not why_not(env_id):
            reason += "; EnvPool steps it in C++, Gymnasium in Python"
            return Engine(env_id, kwargs, "envpool", reason)
        return Engine(env_id, kwargs, "gymnasium", reason, source)
    if backend == "gymnasium" and not source.is_own_task:
        return Engine(env_id, kwargs, backend, "asked for", source)
    if task is None or task.backend != backend:
        have = reason if task is None else f"its native task runs on {task.backend}"
        raise InvalidEnvironment(f"{env_id}: backend '{backend}' cannot do it: {have}")
    return Engine(env_id, kwargs, backend, "asked for", source, task)
