"""A rollout as sequences for a loss with a memory, and the same walked through by hand, a step at a time."""

import dataclasses

import numpy as np
import torch

from spreeze_zmq.algorithms.declared import Fields
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.replay import replay_of

STEPS, ENVS, MEMORY, BURN_IN = 7, 3, 4, 2
SETTINGS = {
    "memory_size": MEMORY,
    "sequence_length": STEPS,
    "burn_in": BURN_IN,
    "batch_size": STEPS * ENVS,
    "hidden_sizes": (8,),
    "n_step": 2,
    "gamma": 0.9,
}


def rollout_of(env):
    """Random, with a memory; one episode ends within the burn-in, one is cut and one ends behind it."""
    made = random_rollout(env, STEPS, ENVS, memory_size=MEMORY)
    rng = np.random.default_rng(5)
    terminated, truncated = np.zeros((2, STEPS, ENVS), bool)
    terminated[0, 0] = truncated[3, 1] = terminated[4, 2] = True
    ended = {"terminated": terminated, "truncated": truncated}
    index = np.argwhere(terminated | truncated).astype(np.int32)
    final_obs = rng.standard_normal((3, *env.obs_shape)).astype(np.float32)
    if env.action_mask:
        ended["final_action_mask"] = np.ones((3, env.num_choices), bool)
    memory = rng.uniform(-1, 1, (ENVS, MEMORY)).astype(np.float32)
    return dataclasses.replace(made, **ended, final_obs=final_obs, final_index=index, memory=memory)


def drawn(rollout, algorithm, part="critic", **settings):
    """Each sequence of a rollout once, as a loss of one part gets them, in order."""
    options = dataclasses.replace(algorithm.options, learning_starts=1, replay_capacity=100)
    replay = replay_of(type(algorithm).kept_fields(part, options), algorithm.env, options, "cpu", 0)
    replay.add(rollout)
    rows = replay.ring.take(torch.arange(ENVS))
    batch = vars(replay._batch(rows))
    whole = {"begins", "weight"}
    fields = {
        name: value if value is None or name in whole else value.flatten(0, 1)
        for name, value in batch.items()
    }
    return Fields(**{**fields, **settings})


def walked(network, rollout, env, taken=None):
    """The memory before and after each step of one environment, ``[1, M]``: the stored one, or with the
    actions ``taken`` ``[T, 1, A]`` zeros at the start; zeros where an episode begins; up to the burn-in
    without gradients.
    """
    memory = torch.from_numpy(rollout.memory[env : env + 1])
    memory = memory if taken is None else torch.zeros_like(memory)
    ended = rollout.terminated | rollout.truncated
    before, after = [], []
    for t in range(STEPS):
        with torch.set_grad_enabled(t >= BURN_IN):
            if t and ended[t - 1, env]:
                memory = torch.zeros_like(memory)
            before.append(memory)
            row = obs_of(rollout, t, env)
            memory = network(row if taken is None else torch.cat([row, taken[t]], 1), memory)[1]
            after.append(memory)
    return before, after


def obs_of(rollout, t, env):
    """``[1, size]``."""
    return torch.from_numpy(rollout.obs[t, env : env + 1])


def next_obs_of(rollout, t, env):
    """The observation that followed a step, also an episode's last one."""
    finals = {tuple(index): row for index, row in zip(rollout.final_index, rollout.final_obs, strict=True)}
    return torch.from_numpy(finals.get((t, env), rollout.obs[t + 1, env]))[None]


def two_steps(rollout, t, env):
    """The sum of rewards of up to two steps, its discount, and the last of these steps."""
    ended = (rollout.terminated | rollout.truncated)[:, env]
    last = t + 1 if t + 1 < STEPS and not ended[t] else t
    rewards = [0.9**k * rollout.reward[t + k, env] for k in range(last - t + 1)]
    return sum(rewards), 0.0 if rollout.terminated[last, env] else 0.9 ** len(rewards), last


def priority(errors):
    """Of a sequence with these absolute errors."""
    return 0.9 * max(errors) + 0.1 * sum(errors) / len(errors)
