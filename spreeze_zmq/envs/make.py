"""The two entry points of the environment engine; Gymnasium and MuJoCo are imported only when they are called."""

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
        InvalidEnvironment: it cannot be made, or has spaces that no policy here can act in; one clear message.
    """
    from .gymnasium_loop import time_limit
    from .source import find

    kwargs = dict(env_kwargs or {})
    env = find(env_id).make_one(kwargs)
    try:
        return spec_of(env_id, kwargs, env.observation_space, env.action_space, time_limit(env))
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
        env_id: a registered id; ``module:id``, where importing the module registers it; ``module:callable``, which
            returns a ``gymnasium.Env``.
        num_envs: how many environments.
        batch_size: how many finished ones ``recv`` waits for; all of them.
        num_workers: processes to spread them over; 0 steps them in this one.
        backend: one of ``BACKENDS``; ``auto`` takes the fastest that can do this environment, and
            ``env.backend_reason`` says why.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether ``step`` gathers the environments' own infos; final observations and episode statistics are
            given in any case.
        kwargs: arguments of the environment's constructor; ``max_episode_steps`` overrides its time limit.

    Raises:
        InvalidEnvironment: it cannot be made in this way; says why.
    """
    from .gymnasium_loop import GymnasiumLoop
    from .source import find

    _refuse(env_id, num_envs, batch_size, num_workers, backend)
    env = GymnasiumLoop(find(env_id), kwargs, num_envs, seed, step_info)
    env.backend_reason = "no native task of this name"
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
            f"{env_id}: batch_size is num_envs ({num_envs}) where environments step together, not {batch_size}"
        )
