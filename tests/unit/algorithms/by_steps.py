"""Rollouts as sequences for a loss with a memory, and the same walked through by hand, a step at a time."""

import dataclasses

import numpy as np
import torch

from spreeze_zmq.algorithms.declared import Fields
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.replay import replay_of

STEPS, ENVS, MEMORY = 7, 3, 4
SETTINGS = {
    "memory_size": MEMORY,
    "sequence_length": STEPS,
    "batch_size": STEPS * ENVS,
    "hidden_sizes": (8,),
    "n_step": 2,
    "gamma": 0.9,
}


def rollouts_of(env):
    """Two that follow each other, random, with a memory. In the first, one episode ends with its last step
    and one is cut before; in the second, one ends at once, one is cut and one ends later.
    """
    return [
        _rollout(env, 0, terminated=[(STEPS - 1, 0)], truncated=[(3, 1)]),
        _rollout(env, 1, terminated=[(0, 0), (4, 2)], truncated=[(3, 1)]),
    ]


def _rollout(env, number, **ends):
    made = random_rollout(env, STEPS, ENVS, memory_size=MEMORY)
    rng = np.random.default_rng(5 + number)
    ended = {name: np.zeros((STEPS, ENVS), bool) for name in ends}
    for name, places in ends.items():
        ended[name][tuple(zip(*places, strict=True))] = True
    index = np.argwhere(ended["terminated"] | ended["truncated"]).astype(np.int32)
    if env.action_mask:
        ended["final_action_mask"] = np.ones((len(index), env.num_choices), bool)
    return dataclasses.replace(
        made,
        **ended,
        sequence=number,
        produced=(number + 1) * STEPS * ENVS,
        obs=rng.standard_normal(made.obs.shape).astype(np.float32),
        final_obs=rng.standard_normal((len(index), *env.obs_shape)).astype(np.float32),
        final_index=index,
        memory=rng.uniform(-1, 1, (ENVS, MEMORY)).astype(np.float32),
    )


def drawn(rollouts, algorithm, part="critic", **settings):
    """Each sequence of the last rollout once, as a loss of one part gets them, in order."""
    options = dataclasses.replace(algorithm.options, learning_starts=1, replay_capacity=100)
    replay = replay_of(type(algorithm).kept_fields(part, options), algorithm.env, options, "cpu", 0)
    for rollout in rollouts:
        replay.add(rollout)
    rows = replay.ring.take(torch.arange(ENVS) + ENVS * (len(rollouts) - 1))
    batch = vars(replay._batch(rows))
    whole = {"begins", "weight"}
    fields = {
        name: value if value is None or name in whole else value.flatten(0, 1).clone()
        for name, value in batch.items()
    }
    return Fields(**{**fields, **settings})


def walked(network, rollouts, env, taken=None):
    """The memory before and after each step of one environment in the last rollout, ``[1, M]``: that stored
    before the first one, or with the actions ``taken`` of each rollout ``[T, 1, A]`` zeros; zeros where an
    episode begins; up to the last rollout without gradients.
    """
    memory = torch.from_numpy(rollouts[0].memory[env : env + 1])
    memory = memory if taken is None else torch.zeros_like(memory)
    ended = False
    for number, rollout in enumerate(rollouts):
        before, after = [], []
        with torch.set_grad_enabled(rollout is rollouts[-1]):
            for t in range(STEPS):
                if ended:
                    memory = torch.zeros_like(memory)
                before.append(memory)
                row = obs_of(rollout, t, env)
                memory = network(row if taken is None else torch.cat([row, taken[number][t]], 1), memory)[1]
                after.append(memory)
                ended = rollout.terminated[t, env] or rollout.truncated[t, env]
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
