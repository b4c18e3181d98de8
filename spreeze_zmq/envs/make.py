"""The two entry points of the environment engine; Gymnasium and MuJoCo are imported when they are called."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidEnvironment
from .spec import EnvironmentSpec, spec_of

if TYPE_CHECKING:
    from .batched import BatchedEnv
    from .failures import Failure

#: What ``make`` takes as ``backend``.
BACKENDS = ("auto", "mujoco", "numpy", "envpool", "gymnasium")
#: Arguments of ``make`` itself; no environment gets them.
RESERVED = (
    "env_id",
    "num_envs",
    "seed",
    "batch_size",
    "num_workers",
    "step_info",
    "max_failures",
    "step_timeout_s",
    "on_failure",
    "randomize",
)


def probe(
    env_id: str, env_kwargs: Mapping[str, Any] | None = None, randomize: Mapping[str, Any] | None = None
) -> EnvironmentSpec:
    """Make one environment, read its spaces, close it.

    Args:
        env_id: as for ``make``.
        env_kwargs: arguments of its constructor.
        randomize: ranges of its model's parameters, to check them.

    Raises:
        InvalidEnvironment: it cannot be made, or no policy here can act in its spaces; one clear message.
    """
    kwargs = dict(env_kwargs or {})
    reserved = [name for name in RESERVED if name in kwargs]
    if reserved:
        raise InvalidEnvironment(f"{env_id}: '{reserved[0]}' is set by the system, not by env_kwargs")
    env = make(env_id, 1, randomize=randomize, **kwargs)
    try:
        spaces = env.single_observation_space, env.single_action_space
        return spec_of(env_id, kwargs, *spaces, env.episode_limit)
    finally:
        env.close()


def make(
    env_id: str,
    num_envs: int,
    *,
    batch_size: int | None = None,
    num_workers: int = 0,
    backend: str = "auto",
    seed: int = 0,
    step_info: bool = True,
    max_failures: int = 10,
    step_timeout_s: float | None = 60.0,
    on_failure: Callable[[Failure], None] | None = None,
    randomize: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> BatchedEnv:
    """A batch of environments that follows ``gymnasium.vector`` in same-step autoreset mode.

    Args:
        env_id: a registered id; ``module:id``, where importing the module registers it; ``module:callable``,
            which returns a ``gymnasium.Env``; ``module:Class`` of a native task of one's own; a name of
            EnvPool's.
        num_envs: how many environments.
        batch_size: how many finished ones ``recv`` waits for; by default all. Fewer need ``num_workers``, or
            EnvPool.
        num_workers: processes to spread them over; 0 steps them in this one. ``kwargs`` are then plain data,
            and the environments' own infos stay in the workers. Native tasks that all step together gain
            nothing from processes: they stay in this one, and MuJoCo steps them in so many threads.
        backend: one of ``BACKENDS``; ``auto`` takes the fastest that can do this environment. The result's
            ``backend`` and ``backend_reason`` tell which one and why.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether ``step`` gathers the environments' own infos; final observations and episode
            statistics are given in any case.
        max_failures: an environment that raises, hangs or gives what is not finite is logged, its episode
            truncated, and it begins anew; more such failures in a minute raise ``EnvironmentFailure``.
        step_timeout_s: with workers, a step that takes longer counts as hanging; ``None`` for never.
        on_failure: called with each failure that is mended.
        randomize: ranges that parameters of a MuJoCo task's model are drawn from, in each environment at each
            reset: ``{"body_mass": [0.8, 1.2]}``; ``spreeze_zmq.envs.randomization`` tells all of it.
        kwargs: arguments of the environment's constructor; ``max_episode_steps`` overrides its time limit.

    Raises:
        InvalidEnvironment: it cannot be made in this way; says why.
        EnvironmentFailure: the workers did not come up.
    """
    _refuse(env_id, num_envs, batch_size, num_workers, backend)
    if randomize:
        _refuse_ranges(env_id, backend, kwargs)
    from .failures import Failures

    size = batch_size or num_envs
    if num_workers and not (size == num_envs and _is_native(env_id, backend, kwargs)):
        env = _in_workers(
            env_id, num_envs, size, num_workers, backend, seed, step_timeout_s, kwargs, randomize
        )
    else:
        env = _in_process(
            env_id, num_envs, size, backend, seed, step_info, kwargs, randomize, max(1, num_workers)
        )
    env.failures = Failures(max_failures, on_failure)
    return env


def _in_process(
    env_id: str,
    num_envs: int,
    size: int,
    backend: str,
    seed: int,
    step_info: bool,
    kwargs: dict[str, Any],
    randomize: Mapping[str, Any] | None = None,
    num_threads: int = 1,
) -> BatchedEnv:
    from .envpool_batch import EnvPoolBatch, why_not
    from .source import find

    if backend == "envpool":
        env: BatchedEnv = EnvPoolBatch(env_id, num_envs, size, seed, kwargs)
        env.backend_reason = "asked for"
        return env
    try:
        source = find(env_id)
    except InvalidEnvironment as error:
        if backend != "auto" or ":" in env_id:
            raise
        if reason := why_not(env_id):
            raise InvalidEnvironment(f"{error}; {reason}") from None
        env = EnvPoolBatch(env_id, num_envs, size, seed, kwargs)
        env.backend_reason = "Gymnasium does not have it, EnvPool does"
        return env
    native, reason = source.native(kwargs)
    if backend not in ("auto", "gymnasium") and (native is None or native.backend != backend):
        have = reason if native is None else f"its native task runs on {native.backend}"
        raise InvalidEnvironment(f"{env_id}: backend '{backend}' cannot do it: {have}")
    if backend == "auto" and native is None and source.is_gymnasiums_own(kwargs) and not why_not(env_id):
        env = EnvPoolBatch(env_id, num_envs, size, seed, kwargs)
        env.backend_reason = f"{reason}; EnvPool steps it in C++, Gymnasium in Python"
        return env
    if size < num_envs:
        raise InvalidEnvironment(
            f"{env_id}: environments of one process step together, so batch_size is num_envs ({num_envs}),"
            f" not {size} (num_workers spreads them over processes)"
        )
    if native is not None and (backend != "gymnasium" or source.is_own_task):
        if backend == "gymnasium":
            raise InvalidEnvironment(f"{env_id}: backend 'gymnasium' cannot do it: {reason}")
        env = source.make_native(native, num_envs, kwargs, seed, step_info, randomize, num_threads)
    else:
        from .gymnasium_loop import GymnasiumLoop

        env = GymnasiumLoop(source, kwargs, num_envs, seed, step_info)
    env.backend_reason = reason if backend == "auto" else "asked for"
    return env


def _is_native(env_id: str, backend: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether this process itself can step the whole batch natively."""
    from .source import find

    try:
        native, _ = find(env_id).native(kwargs)
    except InvalidEnvironment:  # EnvPool may have it; who makes it says what is wrong
        return False
    return native is not None and backend in ("auto", native.backend)


def _in_workers(
    env_id: str,
    num_envs: int,
    size: int,
    num_workers: int,
    backend: str,
    seed: int,
    step_timeout_s: float | None,
    kwargs: dict[str, Any],
    randomize: Mapping[str, Any] | None,
) -> BatchedEnv:
    from .workers import WorkerEnv

    try:
        json.dumps(kwargs)
    except TypeError as error:
        raise InvalidEnvironment(
            f"{env_id}: with num_workers its arguments are plain data that another process can be told, but:"
            f" {error} (a callable of a module, 'module:callable', can make them there)"
        ) from None
    like = _in_process(env_id, 1, 1, backend, seed, False, kwargs, randomize)
    arguments = {
        "env_id": env_id,
        "backend": like.backend,
        "step_info": False,
        "randomize": randomize,
        **kwargs,
    }
    try:
        env = WorkerEnv(like, num_envs, num_workers, size, seed, arguments, step_timeout_s)
    finally:
        like.close()
    env.backend_reason = f"{like.backend_reason}; in {num_workers} workers"
    return env


def _refuse_ranges(env_id: str, backend: str, kwargs: Mapping[str, Any]) -> None:
    """Ranges of model parameters are for environments that have such a model, not to be ignored by others."""
    from .source import find

    source = find(env_id)
    native, reason = source.native(kwargs)
    if native is None or (backend in ("gymnasium", "envpool") and not source.is_own_task):
        raise InvalidEnvironment(
            f"{env_id}: randomize needs a MuJoCo task that is stepped natively: {reason}"
        )


def _refuse(env_id: str, num_envs: int, batch_size: int | None, num_workers: int, backend: str) -> None:
    if num_envs < 1:
        raise InvalidEnvironment(f"{env_id}: num_envs is at least 1, not {num_envs}")
    if backend not in BACKENDS:
        raise InvalidEnvironment(f"{env_id}: backend is one of {', '.join(BACKENDS)}, not '{backend}'")
    if not 0 <= num_workers <= num_envs:
        raise InvalidEnvironment(
            f"{env_id}: num_workers is from 0 (in this process) to num_envs ({num_envs}), not {num_workers}"
        )
    if batch_size is not None and not 1 <= batch_size <= num_envs:
        raise InvalidEnvironment(f"{env_id}: batch_size is from 1 to num_envs ({num_envs}), not {batch_size}")
