"""Distributions over returns on fixed atoms (C51: Bellemare et al. 2017, arXiv 1707.06887)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spreeze_zmq.algorithms.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def project(probability_t: Tensor, r_t: Tensor, discount_t: Tensor, v_min: float, v_max: float) -> Tensor:
    """The distribution of ``r_t + discount_t * return``, on the atoms of the return: algorithm 1.

    Args:
        probability_t: ``[B, atoms]``, of the returns ``linspace(v_min, v_max, atoms)``.
        r_t: ``[B]``.
        discount_t: ``[B]``.
        v_min: lowest return.
        v_max: highest return.

    Returns:
        Probabilities ``[B, atoms]``; what falls outside of the range lies on its ends.
    """
    num_atoms = probability_t.shape[1]
    steps_per_unit = (num_atoms - 1) / (v_max - v_min)
    returns = torch.linspace(v_min, v_max, num_atoms, device=r_t.device)
    # Places of the moved atoms, in steps from the lowest.
    place = (r_t.unsqueeze(1) + discount_t.unsqueeze(1) * returns - v_min) * steps_per_unit
    place = place.clamp(0.0, num_atoms - 1)
    below = place.floor()
    to_above = probability_t * (place - below)
    index = below.long()
    projected = torch.zeros_like(probability_t).scatter_add_(1, index, probability_t - to_above)
    # Nothing goes above the last atom: to_above is 0 there.
    return projected.scatter_add_(1, (index + 1).clamp(max=num_atoms - 1), to_above)


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Kullback-Leibler divergence of ``softmax(logits)`` ``[..., B, atoms]`` from ``target`` ``[B, atoms]``.

    Its gradient is that of the paper's cross entropy; never negative, ``[..., B]``.
    """
    return (torch.xlogy(target, target) - target * logits.float().log_softmax(-1)).sum(-1)
