"""What no sampler can beat on one core, for ``spreeze bench``: the bare physics of its environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.bench.figures import Rate, repeated
from spreeze_zmq.policy import Policy

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv
    from spreeze_zmq.envs.mujoco import MujocoTask

#: The bare physics takes each of its steps from a state that the engine stepped from, with the same action:
#: by itself it would measure robots that have fallen and were not reset. To put the state there is cheap.
NUM_STATES = 256


def policy_actions(env: BatchedEnv, action_shape: tuple[int, ...], policy: Policy) -> list[NDArray[Any]]:
    """What a policy does from ``reset(seed=0)`` on, for as long as ``bare_mujoco`` takes states.

    A robot on the ground costs more physics than one that random actions throw about, so the limit
    is the physics of what the policy does.
    """
    obs, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions: list[NDArray[Any]] = []
    for _ in range(NUM_STATES):
        drawn = policy.act(obs, rng)[0].reshape(env.num_envs, *action_shape)
        actions.append(policy.env_action(drawn))
        obs = env.step(actions[-1])[0]
    return actions


def cycled(step: Callable[[Any], object], actions: Sequence[NDArray[Any]]) -> Callable[[], None]:
    """Calls ``step`` with the next of ``actions``, over and over."""
    count = 0

    def next_step() -> None:
        nonlocal count
        step(actions[count % len(actions)])
        count += 1

    return next_step


def bare_physics(
    env: BatchedEnv, env_id: str, actions: Sequence[NDArray[Any]]
) -> tuple[Callable[[float], Rate], str]:
    """What cannot be beaten on one core, and what it is; resets ``env`` and steps it a while.

    For MuJoCo tasks the physics of the same batch, for any other environment the loop that Gymnasium's users
    write around one of them.
    """
    env.reset(seed=0)
    num_envs = env.num_envs
    if env.backend == "mujoco":
        step = bare_mujoco(env, actions)
        return (lambda turn_s: repeated(step, num_envs, turn_s)), "mujoco.batch stepping the same alone"
    from spreeze_zmq.envs.source import find

    source = find(env_id)
    if source.is_own_task:
        task: Any = env.task  # type: ignore[attr-defined]
        step = cycled(task.advance, actions)
        return (lambda turn_s: repeated(step, num_envs, turn_s)), "the task's advance alone"
    step = one_gymnasium(source.make_one({}), [batch[0] for batch in actions])
    return (lambda turn_s: repeated(step, 1, turn_s)), "env.step of one Gymnasium environment"


def bare_mujoco(env: Any, actions: Sequence[NDArray[Any]], nthread: int = 1) -> Callable[[], None]:
    """One step of all simulations without observing, rewarding or resetting, from states that ``env`` has
    been in, of the model as its file says: what the engine spares the solver is the engine's gain.
    """
    from mujoco.batch import Batch

    task: MujocoTask = env.task
    states = []
    for count in range(NUM_STATES):
        states.append(task.batch.state.copy())
        env.step(actions[count % len(actions)])
    batch = Batch(task.load()[1], env.num_envs, nthread=nthread)
    ctrl, frame_skip = batch.bind("ctrl"), task.frame_skip
    count = 0

    def step() -> None:
        nonlocal count
        batch.state[:] = states[count % len(states)]
        ctrl[:] = actions[count % len(actions)]
        batch.step(nstep=frame_skip)
        count += 1

    return step


def one_gymnasium(env: Any, actions: Sequence[NDArray[Any]]) -> Callable[[], None]:
    """One step of one environment, and its reset where the episode ends."""
    env.reset(seed=0)
    count = 0

    def step() -> None:
        nonlocal count
        _, _, terminated, truncated, _ = env.step(actions[count % len(actions)])
        if terminated or truncated:
            env.reset()
        count += 1

    return step
