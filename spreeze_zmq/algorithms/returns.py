"""Returns and advantages of rollouts, corrected for the policy that acted (V-trace)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor


def vtrace(
    v_tm1: Tensor,
    v_t: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    continues_t: Tensor,
    rho_tm1: Tensor,
    *,
    gae_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets and advantages (Espeholt et al. 2018, arXiv 1802.01561, equation 1 and section 4.2).

    With ``rho_tm1 = 1`` these are the TD(lambda) returns and the generalised advantage estimates of Schulman
    et al. 2015 (arXiv 1506.02438, equation 16).

    Args:
        v_tm1: value of the state in which the step was taken, ``[T, N]``, like all others.
        v_t: value of the next state; that of the episode's true last state where it ended.
        r_t: reward of the step.
        discount_t: gamma, or 0 after termination.
        continues_t: 1, or 0 where the episode ended and the next row begins another one.
        rho_tm1: probability of the action under the evaluated policy, divided by that under the policy that
            acted.
        gae_lambda: weight of longer returns, the lambda of the paper's remark 2.
        rho_bar: upper bound of ``rho_tm1`` in the temporal differences; determines the limit of the values.
        c_bar: upper bound of ``rho_tm1`` in the traces; determines the speed of convergence.

    Returns:
        Targets for ``v_tm1`` and advantages of the actions, both ``[T, N]``. The advantages are not weighted
        by ``rho_tm1``: a loss with an importance ratio does that.
    """
    delta_tm1 = r_t + discount_t * v_t - v_tm1
    trace_tm1 = gae_lambda * continues_t * discount_t
    weighed_tm1, kept_tm1 = rho_tm1.clamp(max=rho_bar) * delta_tm1, rho_tm1.clamp(max=c_bar) * trace_tm1
    # Backwards: the target of each state minus its value, which is 0 beyond the last row.
    corrections = [torch.zeros_like(v_t[0])]
    for weighed, kept in zip(reversed(weighed_tm1.unbind()), reversed(kept_tm1.unbind()), strict=True):
        corrections.append(torch.addcmul(weighed, kept, corrections[-1]))
    correction = torch.stack(corrections[::-1])
    return v_tm1 + correction[:-1], delta_tm1 + trace_tm1 * correction[1:]


def explained_variance(error: Tensor, target: Tensor) -> Tensor:
    """Share of the targets' variance that is not left in the errors; 0 where targets are all alike."""
    left, whole = error.var(correction=0), target.var(correction=0)
    return torch.where(whole > 0.0, 1.0 - left / whole, 0.0)


def rollout_returns(
    rollouts: Any,
    value: Callable[[Tensor], Tensor],
    gamma: float,
    rho_tm1: Tensor | None = None,
    **weights: float,
) -> tuple[Tensor, Tensor]:
    """:func:`vtrace` of a round of rollouts.

    Returns bootstrap from the value of the episode's true last observation after truncation, from nothing
    after termination; none reaches beyond the end of an episode.

    Args:
        rollouts: as :meth:`Algorithm.targets_of` gets them.
        value: from observations ``[B, size]`` to their values ``[B]``.
        gamma: discount of one step.
        rho_tm1: ``[T, N]``; 1 by default.
        weights: ``gae_lambda``, ``rho_bar``, ``c_bar``.

    Returns:
        Targets and advantages, ``[T, N]``.
    """
    num_steps, num_envs = rollouts.reward.shape
    v = value(rollouts.obs.flatten(0, 1)).view(num_steps + 1, num_envs)
    v_tm1, v_t = v[:-1], v[1:].clone()
    ended_at, ended_in = rollouts.final_index.long().unbind(1)
    v_t[ended_at, ended_in] = value(rollouts.final_obs)
    discount_t = gamma * (~rollouts.terminated).float()
    continues_t = (~(rollouts.terminated | rollouts.truncated)).float()
    rho_tm1 = torch.ones_like(v_tm1) if rho_tm1 is None else rho_tm1
    return vtrace(v_tm1, v_t, rollouts.reward, discount_t, continues_t, rho_tm1, **weights)
