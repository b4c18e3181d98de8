"""SAC's tuned halves: derivatives by hand and preallocated buffers, until native layers replace them.

What every module of tuned halves has: ``make_critic``, ``make_policy`` and ``batch_bytes``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spreeze_zmq.envs.spec import EnvironmentSpec

if TYPE_CHECKING:
    from spreeze_zmq.algorithms.fast.sac_actor import SACActor
    from spreeze_zmq.algorithms.fast.sac_critic import SACCritic

__all__ = ["batch_bytes", "make_critic", "make_policy"]


def make_critic(options: Any, env: EnvironmentSpec, device: str, seed: int) -> SACCritic:
    """The half that trains the critics, initialised from ``seed``. Raises InputError."""
    from spreeze_zmq.algorithms.fast.sac_critic import SACCritic

    return SACCritic(options, env, device, seed)


def make_policy(options: Any, env: EnvironmentSpec, device: str, seed: int) -> SACActor:
    """The half that trains policy and temperature, initialised from ``seed``. Raises InputError."""
    from spreeze_zmq.algorithms.fast.sac_actor import SACActor

    return SACActor(options, env, device, seed)


def batch_bytes(options: Any, env: EnvironmentSpec) -> int:
    """Upper bound of the bytes that an update takes for each transition of its batch.

    Inputs in float32, and of every layer what the forward pass keeps and the backward pass makes of it. With
    fp32 and no cutting into blocks, the shipped topologies were seen to take 0.4 to 0.8 of this.
    """
    num_inputs, num_actions = math.prod(env.obs_shape), math.prod(env.action_shape)
    critic: int = sum(options.critic_hidden_sizes or options.hidden_sizes)
    policy: int = sum(options.actor_hidden_sizes or options.hidden_sizes)
    # Twin critics and their targets; a normalisation keeps its input as well.
    floats: int = (16 if options.layer_norm else 8) * critic + (8 if options.actor_layer_norm else 4) * policy
    floats += 24 * options.num_atoms + 8 * (num_inputs + 2 * num_actions)
    return 4 * floats
