"""Random rollouts, batches and rounds, to measure learners without samplers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.replay import Round, RoundStore, replay_of
from spreeze_zmq.rollout import Rollout

NUM_ENVS = 16


def random_rollout(
    env: EnvironmentSpec, num_steps: int = 16, num_envs: int = NUM_ENVS, frame_stack: int = 1
) -> Rollout:
    """A rollout of ``num_steps`` random steps in which no episode ends; the same in every call.

    Its size is by default that of a sampler's rollouts. Networks take ``frame_stack`` observations at once.
    """
    rng, steps, before = np.random.default_rng(1), (num_steps, num_envs), frame_stack - 1
    shape = (before + num_steps + 1, num_envs, *env.obs_shape)
    pixels = env.obs_dtype == "uint8"
    obs: Any = rng.integers(0, 256, shape, np.uint8) if pixels else rng.standard_normal(shape)
    shape = (*steps, *env.action_shape)
    if env.action_kind != "box":
        action: Any = rng.integers(0, env.action_sizes, shape)
    elif env.action_low is None or env.action_high is None:
        action = rng.standard_normal(shape).astype(np.float32)
    else:
        action = rng.uniform(env.action_low, env.action_high, shape).astype(np.float32)
    obs = obs.astype(env.obs_dtype, copy=False)
    return Rollout(
        *("random", 1, 0, num_steps * num_envs, 0, num_steps, num_envs),
        obs=obs[before:],
        action=action,
        reward=rng.standard_normal(steps).astype(np.float32),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        final_obs=np.zeros((0, *env.obs_shape), env.obs_dtype),
        final_index=np.zeros((0, 2), np.int32),
        history=obs[:before] if before else None,
    )


def random_batch_of(
    fields: tuple[str, ...], spec: EnvironmentSpec, options: Any, batch_size: int, device: str
) -> Any:
    """A random batch of a learner whose rollouts have these ``fields``: observations or a ``Batch``."""
    rows, stack = math.ceil(batch_size / NUM_ENVS), options.frame_stack
    kept = (rows + stack) * NUM_ENVS
    small = dataclasses.replace(options, replay_capacity=kept, learning_starts=1)
    replay = replay_of(fields, spec, small, device, 1)
    replay.add(random_rollout(spec, rows, NUM_ENVS, stack))
    return replay.sample(batch_size)


def random_round(
    spec: EnvironmentSpec, transitions: int, device: str, frame_stack: int = 1, memory_size: int = 0
) -> Round:
    """A random round in which no episode ends and every action has log probability -1."""
    rollout = random_rollout(spec, transitions // NUM_ENVS, NUM_ENVS, frame_stack)
    log_prob = np.full((rollout.num_steps, NUM_ENVS), -1.0, np.float32)
    store = RoundStore(1, device, stack=frame_stack)
    memory = np.zeros((NUM_ENVS, memory_size), np.float32) if memory_size else None
    store.add(dataclasses.replace(rollout, log_prob=log_prob, memory=memory))
    return store.take()[0]
