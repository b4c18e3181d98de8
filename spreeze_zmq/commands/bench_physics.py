"""What no sampler can beat on one core, for ``spreeze bench``: the bare physics of its environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.commands.bench_figures import Rate, repeated
from spreeze_zmq.envs import EnvironmentSpec

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv
    from spreeze_zmq.envs.mujoco_task import MujocoTask

#: Drawn once and used in turn, so that drawing them is not in the figures.
NUM_ACTIONS = 64
#: The bare physics is put back into a state of the engine's this often, or it would measure fallen robots.
STEPS_FROM_STATE = 8
NUM_STATES = 32


def random_actions(spec: EnvironmentSpec, num_envs: int) -> list[NDArray[Any]]:
    """``NUM_ACTIONS`` batches ``[num_envs, *action]``, uniform within the bounds."""
    rng = np.random.default_rng(0)
    shape = (NUM_ACTIONS, num_envs, *spec.action_shape)
    if spec.num_actions is not None:
        return list(rng.integers(spec.num_actions, size=shape))
    assert spec.action_low is not None, "a box has bounds"
    assert spec.action_high is not None
    return list(rng.uniform(spec.action_low, spec.action_high, shape).astype(np.float32))


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
    env.reset()
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
    been in.
    """
    from mujoco.batch import Batch

    task: MujocoTask = env.task
    states = []
    for count in range(NUM_STATES * STEPS_FROM_STATE):
        env.step(actions[count % len(actions)])
        if count % STEPS_FROM_STATE == 0:
            states.append(task.batch.state.copy())
    batch = Batch(task.model, env.num_envs, nthread=nthread)
    ctrl, frame_skip = batch.bind("ctrl"), task.frame_skip
    count = 0

    def step() -> None:
        nonlocal count
        if count % STEPS_FROM_STATE == 0:
            batch.state[:] = states[count // STEPS_FROM_STATE % len(states)]
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
