"""What keeps PPO's updates near the policy and values of the round, beside the clipped ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spreeze_zmq.algorithms.options import LEAST_RATE, MOST_RATE
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor

#: By how much the learning rate follows the divergence at once.
RATE_STEP = 1.5


def check_rate(rate: Any) -> None:
    """Raise InputError if ``desired_kl`` cannot move a policy's learning rate."""
    if not isinstance(rate, int | float):
        problem = "desired_kl moves the policy's learning_rate, which is a schedule too"
        raise InputError(f"{problem}; leave one of them out")
    if not LEAST_RATE <= rate <= MOST_RATE:
        bounds = f"from {LEAST_RATE:g} to {MOST_RATE:g}"
        raise InputError(f"desired_kl keeps the policy's learning_rate {bounds}, it is {rate:g}")


def divergence(ratio: Tensor, log_ratio: Tensor) -> Tensor:
    """The KL divergence of the policy that acted from the new one: ``E[ratio - 1 - log ratio]``, an estimate
    that is never negative.
    """
    return (ratio - 1.0 - log_ratio).mean()


def rate_factor(kl: Tensor, desired: float) -> Tensor:
    """What the learning rate is multiplied by: 1 / 1.5 above twice the desired divergence, 1.5 below half of
    it, 1 between, as in rsl_rl.
    """
    one = torch.ones_like(kl)
    slower = torch.where(kl > 2.0 * desired, one / RATE_STEP, one)
    return torch.where(kl < 0.5 * desired, one * RATE_STEP, slower)


def held_square(value: Tensor, before: Tensor, target: Tensor, clip: float) -> Tensor:
    """The squared error of a value, at least that of the value held within ``clip`` of the one before the
    round, as in OpenAI's baselines; all ``[B]``.
    """
    held = before + (value - before).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (held - target).square())
