"""The limit of a sampler on one core, for ``spreeze bench``: the bare physics of its environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.commands.bench.figures import Rate, repeated
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.policy import Policy

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv
    from spreeze_zmq.envs.mujoco import MujocoTask

#: Number of states recorded from the engine. Each step of the bare physics starts from one of them: without
#: resets it would measure robots that have fallen. Setting the state is cheap.
NUM_STATES = 256


def without_limit(env_id: str) -> str:
    """Why an environment has no limit to compare with, in words; empty if it has one."""
    from spreeze_zmq.envs.in_process import choose
    from spreeze_zmq.envs.source import find

    choice = choose(env_id, {})
    try:
        find(env_id)
    except InvalidEnvironment:  # a library's own
        return f"{env_id} has no limit to compare with: {choice.reason}"
    return ""


def on_one_core(env_id: str, num_envs: int) -> BatchedEnv:
    """A batch by the engine that a sampler takes. A library's steps with one thread, as in a sampler."""
    from spreeze_zmq.envs.in_process import choose

    backend = choose(env_id, {}).backend
    alone: dict[str, Any] = {"backend": backend, "num_threads": 1} if engine_of(backend).module else {}
    return envs.make(env_id, num_envs, step_info=False, **alone)


def policy_actions(env: BatchedEnv, action_shape: tuple[int, ...], policy: Policy) -> list[NDArray[Any]]:
    """The first ``NUM_STATES`` actions ``[N, *action_shape]`` of a policy from ``reset(seed=0)`` on.

    The physics of a robot on the ground costs more than that of one thrown about by random actions, so the
    limit is measured with the policy's actions.
    """
    obs, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions: list[NDArray[Any]] = []
    for _ in range(NUM_STATES):
        drawn = policy.act(obs, rng)[0].reshape(env.num_envs, *action_shape)
        actions.append(policy.env_action(drawn))
        obs = env.step(actions[-1])[0]
    return actions


def cycled(step: Callable[[Any], object], actions: Sequence[NDArray[Any]]) -> Callable[[], object]:
    """A function that calls ``step`` with the next of ``actions``, endlessly."""
    turns = cycle(actions)
    return lambda: step(next(turns))


def bare_physics(
    env: BatchedEnv, env_id: str, actions: Sequence[NDArray[Any]]
) -> tuple[Callable[[float], Rate], str]:
    """The limit on one core, and its name; resets and steps ``env``.

    For MuJoCo tasks it is the physics of the same batch, for other environments a plain loop around one
    Gymnasium environment.
    """
    env.reset(seed=0)
    num_envs = env.num_envs
    if env.backend == "mujoco":
        step: Callable[[], object] = bare_mujoco(env, actions)
        return partial(repeated, step, num_envs), "mujoco.batch stepping the same alone"
    from spreeze_zmq.envs.engines.fitting import fitted
    from spreeze_zmq.envs.source import find

    source = find(env_id)
    if source.is_own_task:
        task: Any = env.task
        step = cycled(task.advance, actions)
        return partial(repeated, step, num_envs), "the task's advance alone"
    step = one_gymnasium(fitted(env_id, source.make_one({})), [batch[0] for batch in actions])
    return partial(repeated, step, 1), "env.step of one Gymnasium environment"


def bare_mujoco(env: BatchedEnv, actions: Sequence[NDArray[Any]], nthread: int = 1) -> Callable[[], None]:
    """A function that steps all simulations once without observations, rewards or resets.

    Each step starts from a state that ``env`` has been in and takes the same action. The model is that of the
    task's file: the solver work that the engine saves counts for the engine.
    """
    from mujoco.batch import Batch

    task = cast("MujocoTask", env.task)
    recorded = []
    for _, action in zip(range(NUM_STATES), cycle(actions), strict=False):
        recorded.append((task.batch.state.copy(), action))
        env.step(action)
    batch, turns = Batch(task.load()[1], env.num_envs, nthread=nthread), cycle(recorded)
    ctrl, frame_skip = batch.bind("ctrl"), task.frame_skip

    def step() -> None:
        batch.state[:], ctrl[:] = next(turns)
        batch.step(nstep=frame_skip)

    return step


def one_gymnasium(env: Any, actions: Sequence[NDArray[Any]]) -> Callable[[], None]:
    """A function that steps one environment once, and resets it where the episode ends."""
    env.reset(seed=0)
    turns = cycle(actions)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(turns))
        if terminated or truncated:
            env.reset()

    return step
