"""Random rollouts, batches and rounds, to measure learners without samplers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from spreeze_zmq.base.rollout import ARRAY_FIELDS, FIXED_ENTRIES, Rollout
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.packed import Packing, flat, packed
from spreeze_zmq.replay import Batch, ObservationReplay, Replay, Round, RoundStore, replay_of

NUM_ENVS = 16
#: Transitions of the random round of an on-policy algorithm, at least.
ROUND = 512


def random_rollout(
    env: EnvironmentSpec,
    num_steps: int = 16,
    num_envs: int = NUM_ENVS,
    frame_stack: int = 1,
    memory_size: int = 0,
) -> Rollout:
    """A rollout of ``num_steps`` random steps in which no episode ends and every action has log probability
    -1; the same in every call.

    Its size is by default that of a sampler's rollouts, and so are the forms of its arrays. Networks take
    ``frame_stack`` observations at once, and a recurrent policy keeps ``memory_size`` numbers, here zeros.
    """
    rng, steps, before = np.random.default_rng(1), (num_steps, num_envs), frame_stack - 1
    sizes = {"T": num_steps, "T + 1": num_steps + 1, "N": num_envs, "K": 0, "k - 1": before}
    entries = {**FIXED_ENTRIES, "obs": env.obs_shape, "action": env.action_shape, "memory": (memory_size,)}
    entries["mask"] = (env.num_choices,)
    absent = {"history": not before, "memory": not memory_size, "state": True}
    absent |= dict.fromkeys(("action_mask", "final_action_mask"), not env.action_mask)
    arrays: dict[str, Any] = {
        name: np.zeros(form.shape(sizes, entries), env.obs_dtype if form.entry == "obs" else form.dtypes[0])
        for name, form in ARRAY_FIELDS.items()
        if not absent.get(name)
    }
    shape = (before + num_steps + 1, num_envs, *env.obs_shape)
    pixels = env.obs_dtype == "uint8"
    obs: Any = rng.integers(0, 256, shape, np.uint8) if pixels else rng.standard_normal(shape)
    obs = obs.astype(env.obs_dtype, copy=False)
    for span in env.spans_of("pixels"):
        obs[..., span] = rng.integers(0, 256, obs[..., span].shape)
    arrays |= {"obs": obs[before:], **({"history": obs[:before]} if before else {})}
    shape = (*steps, *env.action_shape)
    if env.action_kind != "box":
        arrays["action"] = rng.integers(0, env.action_sizes, shape)
    elif env.action_low is None or env.action_high is None:
        arrays["action"] = rng.standard_normal(shape).astype(np.float32)
    else:
        arrays["action"] = rng.uniform(env.action_low, env.action_high, shape).astype(np.float32)
    arrays["reward"] = rng.standard_normal(steps).astype(np.float32)
    arrays["log_prob"] = np.full(steps, -1.0, np.float32)
    if env.action_mask:
        legal = rng.random((num_steps + 1, num_envs, env.num_choices)) < 0.5
        starts = np.cumsum((0, *env.action_sizes[:-1]))
        np.put_along_axis(legal[:-1], arrays["action"].reshape(*steps, -1) + starts, True, 2)
        legal[-1] = True
        arrays["action_mask"] = legal
    rollout = Rollout(*("random", 1, 0, num_steps * num_envs, 0, num_steps, num_envs), **arrays)
    return packed(rollout, Packing.of(env))


def random_replay(
    fields: tuple[str, ...],
    spec: EnvironmentSpec,
    options: Any,
    device: str,
    num_steps: int = 16,
    num_envs: int = NUM_ENVS,
) -> Replay | ObservationReplay:
    """A full replay of one :func:`random_rollout`, for a learner whose rollouts have these ``fields``; with a
    memory its steps are those of a sequence.
    """
    stack, memory_size = options.frame_stack, options.memory_size if "memory" in fields else 0
    num_steps = options.sequence_length if memory_size else num_steps
    small = dataclasses.replace(options, replay_capacity=(num_steps + stack) * num_envs, learning_starts=1)
    replay = replay_of(fields, spec, small, device, 1)
    replay.add(random_rollout(spec, num_steps, num_envs, stack, memory_size))
    return replay


def random_batch_of(
    fields: tuple[str, ...], spec: EnvironmentSpec, options: Any, batch_size: int, device: str
) -> Batch | torch.Tensor | Mapping[str, torch.Tensor]:
    """A random batch of such a replay, as its ``sample`` gives it."""
    num_steps = math.ceil(batch_size / NUM_ENVS)
    return random_replay(fields, spec, options, device, num_steps).sample(batch_size)


def round_size(batch_size: int) -> int:
    """Transitions of a random round that whole batches and whole steps of its environments make up."""
    multiple = math.lcm(NUM_ENVS, batch_size)
    return multiple * math.ceil(ROUND / multiple)


def random_round(
    spec: EnvironmentSpec, transitions: int, device: str, frame_stack: int = 1, memory_size: int = 0
) -> Round:
    """A random round, of one :func:`random_rollout`."""
    store = RoundStore(1, device, stack=frame_stack)
    rollout = random_rollout(spec, transitions // NUM_ENVS, NUM_ENVS, frame_stack, memory_size)
    store.add(flat(rollout, Packing.of(spec)))
    return store.take()[0]
