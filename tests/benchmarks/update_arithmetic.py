"""The arithmetic of SAC's updates, counted by hand from the widths of its networks, for ``plain_sac.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

from spreeze_zmq.envs import EnvironmentSpec

#: Units of each hidden layer.
HIDDEN_SIZES = (256, 256)


class Widths(TypedDict):
    """Inputs, units of each hidden layer, and outputs of one critic and of the policy."""

    critic: tuple[int, ...]
    policy: tuple[int, ...]


def network_widths(spec: EnvironmentSpec) -> Widths:
    """The widths of the networks that are measured."""
    num_inputs, num_actions = math.prod(spec.obs_shape), math.prod(spec.action_shape)
    return {
        "critic": (num_inputs + num_actions, *HIDDEN_SIZES, 1),
        "policy": (num_inputs, *HIDDEN_SIZES, 2 * num_actions),
    }


def product_flops(batch_size: int, widths: Sequence[int]) -> int:
    """Floating point operations of one pass of ``batch_size`` rows through the linear layers of a network.

    A product of ``[B, in]`` and ``[in, out]`` takes ``2 B in out``. The gradient of all weights costs as much
    as the pass itself, and so does the gradient of all layers' inputs. Biases, activations, loss and
    optimiser are not counted.

    Args:
        batch_size: ``B``.
        widths: inputs, units of each hidden layer, outputs.
    """
    return 2 * batch_size * sum(inputs * outputs for inputs, outputs in pairwise(widths))


def critic_flops(batch_size: int, critic: Sequence[int], policy: Sequence[int]) -> int:
    """Products of one critic update of SAC, with twin critics.

    Forward: the policy at the next observations, both targets, both critics. Backward: the weights' gradients
    of both critics, and their inputs' gradients except the first layer's, which are not needed.
    """
    one = product_flops(batch_size, critic)
    first = product_flops(batch_size, critic[:2])
    return product_flops(batch_size, policy) + 2 * one + 2 * one + 2 * one + 2 * (one - first)


def actor_flops(batch_size: int, critic: Sequence[int], policy: Sequence[int], num_actions: int) -> int:
    """Products of one actor update of SAC, with twin critics.

    Forward: the policy, both critics. Backward: through both critics down to the action, which is
    ``num_actions`` of their inputs; the weights' gradients of the policy, and its inputs' gradients except
    the first layer's.
    """
    one, acting = product_flops(batch_size, critic), product_flops(batch_size, policy)
    to_action = one - product_flops(batch_size, critic[:2])
    to_action += product_flops(batch_size, (num_actions, critic[1]))
    return 3 * acting - product_flops(batch_size, policy[:2]) + 2 * one + 2 * to_action
