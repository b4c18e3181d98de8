"""Transitions that nobody collected, for learners that are measured before or without samplers."""

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
    """``num_steps`` steps of ``num_envs`` environments, by default as many as samplers send, in which no
    episode ends, for networks that take ``frame_stack`` observations at once; the same in every call.
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
    """What a learner that asks for these rollout arrays draws: observations or a ``Batch``."""
    rows, stack = math.ceil(batch_size / NUM_ENVS), options.frame_stack
    kept = (rows + stack) * NUM_ENVS
    small = dataclasses.replace(options, replay_capacity=kept, learning_starts=1)
    replay = replay_of(fields, spec, small, device, 1)
    replay.add(random_rollout(spec, rows, NUM_ENVS, stack))
    return replay.sample(batch_size)


def random_round(
    spec: EnvironmentSpec, transitions: int, device: str, frame_stack: int = 1, memory_size: int = 0
) -> Round:
    """A round in which no episode ends, by a policy whose every action had the same probability."""
    rollout = random_rollout(spec, transitions // NUM_ENVS, NUM_ENVS, frame_stack)
    log_prob = np.full((rollout.num_steps, NUM_ENVS), -1.0, np.float32)
    store = RoundStore(1, device, stack=frame_stack)
    memory = np.zeros((NUM_ENVS, memory_size), np.float32) if memory_size else None
    store.add(dataclasses.replace(rollout, log_prob=log_prob, memory=memory))
    return store.take()[0]
