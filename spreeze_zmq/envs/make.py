"""The two entry points of the environment engine; Gymnasium and MuJoCo are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidEnvironment
from .spec import EnvironmentSpec, spec_of

if TYPE_CHECKING:
    from .batched import BatchedEnv

#: What ``make`` takes as ``backend``.
BACKENDS = ("auto", "mujoco", "numpy", "gymnasium")


def probe(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> EnvironmentSpec:
    """Make one environment, read its spaces, close it.

    Args:
        env_id: as for ``make``.
        env_kwargs: arguments of its constructor.

    Raises:
        InvalidEnvironment: it cannot be made, or no policy here can act in its spaces; one clear message.
    """
    kwargs = dict(env_kwargs or {})
    reserved = [name for name in ("env_id", "num_envs", "seed") if name in kwargs]
    if reserved:
        raise InvalidEnvironment(f"{env_id}: '{reserved[0]}' is set by the system, not by env_kwargs")
    env = make(env_id, 1, **kwargs)
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
    **kwargs: Any,
) -> BatchedEnv:
    """A batch of environments that follows ``gymnasium.vector`` in same-step autoreset mode.

    Args:
        env_id: a registered id; ``module:id``, where importing the module registers it; ``module:callable``,
            which returns a ``gymnasium.Env``; ``module:Class`` of a native task of one's own.
        num_envs: how many environments.
        batch_size: how many finished ones ``recv`` waits for; all of them.
        num_workers: processes to spread them over; 0 steps them in this one.
        backend: one of ``BACKENDS``; ``auto`` takes the fastest that can do this environment. The result's
            ``backend`` and ``backend_reason`` tell which one and why.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether ``step`` gathers the environments' own infos; final observations and episode
            statistics are given in any case.
        kwargs: arguments of the environment's constructor; ``max_episode_steps`` overrides its time limit.

    Raises:
        InvalidEnvironment: it cannot be made in this way; says why.
    """
    _refuse(env_id, num_envs, batch_size, num_workers, backend)
    from .source import find

    source = find(env_id)
    native, reason = source.native(kwargs)
    if backend not in ("auto", "gymnasium") and (native is None or native.backend != backend):
        have = reason if native is None else f"its native task runs on {native.backend}"
        raise InvalidEnvironment(f"{env_id}: backend '{backend}' cannot do it: {have}")
    if native is not None and (backend != "gymnasium" or source.is_own_task):
        if backend == "gymnasium":
            raise InvalidEnvironment(f"{env_id}: backend 'gymnasium' cannot do it: {reason}")
        env: BatchedEnv = source.make_native(native, num_envs, kwargs, seed, step_info)
    else:
        from .gymnasium_loop import GymnasiumLoop

        env = GymnasiumLoop(source, kwargs, num_envs, seed, step_info)
    env.backend_reason = reason if backend == "auto" else "asked for"
    return env


def _refuse(env_id: str, num_envs: int, batch_size: int | None, num_workers: int, backend: str) -> None:
    if num_envs < 1:
        raise InvalidEnvironment(f"{env_id}: num_envs is at least 1, not {num_envs}")
    if backend not in BACKENDS:
        raise InvalidEnvironment(f"{env_id}: backend is one of {', '.join(BACKENDS)}, not '{backend}'")
    if num_workers:
        raise InvalidEnvironment(f"{env_id}: num_workers is 0 for now: environments step in this process")
    if batch_size not in (None, num_envs):
        raise InvalidEnvironment(
            f"{env_id}: environments of one process step together, so batch_size is num_envs ({num_envs}),"
            f" not {batch_size}"
        )
