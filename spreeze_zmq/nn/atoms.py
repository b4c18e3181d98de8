"""Distributions over numbers on fixed atoms (C51, Bellemare et al. 2017, arXiv 1707.06887), each step as one
native call; what torch computes where there is none.
"""

from __future__ import annotations

from typing import Any

import torch

from spreeze_zmq.native import recording
from spreeze_zmq.native.library import library
from spreeze_zmq.nn.native import check_shape, code_for, shape_of_rows


def project(
    probability_t: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor, v_min: float, v_max: float
) -> torch.Tensor:
    """The distribution of ``r_t + discount_t * return``, on the atoms of the return: algorithm 1.

    Args:
        probability_t: ``[B, atoms]``, of the returns ``linspace(v_min, v_max, atoms)``.
        r_t: ``[B]``.
        discount_t: ``[B]``.
        v_min: lowest return.
        v_max: highest return.

    Returns:
        Probabilities ``[B, atoms]``; what falls outside of the range is put on its ends.

    Raises:
        ValueError: one of them has another shape.
    """
    rows, num_atoms = shape_of_rows("probability_t", probability_t)
    check_shape("r_t", r_t, rows)
    check_shape("discount_t", discount_t, rows)
    given = probability_t.contiguous(), r_t.contiguous(), discount_t.contiguous()
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    if num_atoms < 2 or differentiable or code_for(*given) is None:
        return _projected_in_torch(*given, v_min, v_max)
    projected = torch.empty(rows, num_atoms)
    places = [tensor.data_ptr() for tensor in (*given, projected)]
    recording.call(library().code.spreeze_project, rows, num_atoms, v_min, v_max, *places)
    return projected


def _projected_in_torch(
    probability_t: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor, v_min: float, v_max: float
) -> torch.Tensor:
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


def divergence(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence of ``softmax(logits)`` ``[..., B, atoms]`` from ``target`` ``[B, atoms]``.

    Its gradient is that of the paper's cross entropy; never negative, ``[..., B]``.
    """
    logits, target = logits.float().contiguous(), target.contiguous()
    fits = logits.shape[-2:] == target.shape and not target.requires_grad
    if not fits or code_for(logits, target) is None:
        return _divergence_in_torch(logits, target)
    if not (logits.requires_grad and torch.is_grad_enabled()):
        return _diverged(logits, target)[0]
    found: torch.Tensor = _Divergence.apply(logits, target)  # type: ignore[no-untyped-call]
    return found


def _divergence_in_torch(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (torch.xlogy(target, target) - target * logits.log_softmax(-1)).sum(-1)


def _diverged(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same natively, and its derivative by ``logits``."""
    found, slope = torch.empty(logits.shape[:-1]), torch.empty(logits.shape)
    rows, num_atoms = target.shape
    networks = found.numel() // rows if rows else 0
    places = [tensor.data_ptr() for tensor in (logits, target, found, slope)]
    recording.call(library().code.spreeze_divergence, networks, rows, num_atoms, *places)
    return found, slope


class _Divergence(torch.autograd.Function):
    """The same as one native call, whose derivative is known with it."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> Any:
        found, ctx.slope = _diverged(logits, target)
        ctx.save_for_backward(logits, target)
        return found

    @staticmethod
    def backward(ctx: Any, of_found: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # a graph of the gradients is wanted as well
            logits, target = ctx.saved_tensors
            return *torch.autograd.grad(
                _divergence_in_torch(logits, target), logits, of_found, create_graph=True
            ), None
        return ctx.slope * of_found.unsqueeze(-1), None
