"""Distributions over returns on fixed atoms (C51, Bellemare et al. 2017, arXiv 1707.06887): one native call
for each step, or torch's operations where the native library cannot compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spreeze_zmq.nn.native_calls import (
    Gradients,
    Tensors,
    are_fixed,
    call,
    check_shape,
    code_for,
    differentiable,
    empty,
    shape_of_rows,
)


def expectation(logits: Tensor, v_min: float | Tensor, v_max: float | Tensor) -> Tensor:
    """The mean ``[...]`` of ``linspace(v_min, v_max, atoms)`` under ``softmax(logits)`` ``[..., atoms]``.

    It is float32 under autocast, too: in bf16 different returns would become equal.
    """
    found: Tensor = differentiable(
        _Expectation(v_min, v_max), logits.float().contiguous(), numbers=(v_min, v_max)
    )
    return found


class _Expectation:
    """See :class:`Native`; the tensor is that of :func:`expectation`."""

    def __init__(self, v_min: float | Tensor, v_max: float | Tensor) -> None:
        self._range = v_min, v_max

    def in_torch(self, logits: Tensor) -> Tensor:
        return (logits.softmax(-1) * _returns(*self._range, logits.shape[-1], logits)).sum(-1)

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The expectations, and their derivatives by ``logits`` if these may be wanted."""
        found = empty(*logits.shape[:-1])
        slope = empty(*logits.shape) if logits.requires_grad else None
        call("expectation", found.numel(), logits.shape[-1], *self._range, logits, found, slope)
        return found, slope

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        return (kept * gradients[0].unsqueeze(-1),)


def project(
    probability_t: Tensor, r_t: Tensor, discount_t: Tensor, v_min: float | Tensor, v_max: float | Tensor
) -> Tensor:
    """The distribution of ``r_t + discount_t * return``, projected onto the atoms of the return: algorithm 1.

    Args:
        probability_t: ``[B, atoms]``, of the returns ``linspace(v_min, v_max, atoms)``.
        r_t: ``[B]``.
        discount_t: ``[B]``.
        v_min: lowest return.
        v_max: highest return.

    Returns:
        Probabilities ``[B, atoms]``; returns outside of the range count as its ends.

    Raises:
        ValueError: one of the tensors has another shape.
    """
    rows, num_atoms = shape_of_rows("probability_t", probability_t)
    check_shape("r_t", r_t, rows)
    check_shape("discount_t", discount_t, rows)
    given = probability_t.contiguous(), r_t.contiguous(), discount_t.contiguous()
    wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    in_torch = num_atoms < 2 or wants_gradient or not are_fixed((v_min, v_max))
    if in_torch or code_for(*given) is None:
        return _projected_in_torch(*given, v_min, v_max)
    projected = empty(rows, num_atoms)
    call("project", rows, num_atoms, v_min, v_max, *given, projected)
    return projected


def _projected_in_torch(
    probability_t: Tensor, r_t: Tensor, discount_t: Tensor, v_min: float | Tensor, v_max: float | Tensor
) -> Tensor:
    num_atoms = probability_t.shape[1]
    steps_per_unit = (num_atoms - 1) / (v_max - v_min)
    returns = _returns(v_min, v_max, num_atoms, r_t)
    # b of the paper: where each moved atom lies, in steps from the lowest one.
    place = (r_t.unsqueeze(1) + discount_t.unsqueeze(1) * returns - v_min) * steps_per_unit
    place = place.clamp(0.0, num_atoms - 1)
    below = place.floor()
    to_above = probability_t * (place - below)
    index = below.long()
    projected = torch.zeros_like(probability_t).scatter_add_(1, index, probability_t - to_above)
    # Nothing goes above the last atom: to_above is 0 there.
    return projected.scatter_add_(1, (index + 1).clamp(max=num_atoms - 1), to_above)


def _returns(low: float | Tensor, high: float | Tensor, num: int, like: Tensor) -> Tensor:
    """The returns ``[num]`` of the atoms, of the dtype and on the device of ``like``. Of limits that move the
    host reads none: a GPU could record no graph of that.
    """
    if are_fixed((low, high)):
        return torch.linspace(low, high, num, dtype=like.dtype, device=like.device)
    return low + (high - low) * torch.linspace(0.0, 1.0, num, dtype=like.dtype, device=like.device)


def end_masses(probability: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Metrics of distributions ``[B, atoms]``: the mean probability of the lowest and of the highest return.
    Much of it there shows that returns lie beyond the range.
    """
    return {
        "mass_at_v_min": lambda: probability[:, 0].mean(),
        "mass_at_v_max": lambda: probability[:, -1].mean(),
    }


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Kullback-Leibler divergence of ``softmax(logits)`` ``[..., B, atoms]`` from ``target`` ``[B, atoms]``.

    Its gradient is that of the paper's cross entropy; never negative, ``[..., B]``.
    """
    logits, target = logits.float().contiguous(), target.contiguous()
    if logits.shape[-2:] != target.shape:
        return _Divergence.in_torch(logits, target)
    found: Tensor = differentiable(_Divergence(), logits, target)
    return found


class _Divergence:
    """See :class:`Native`; the tensors are those of :func:`divergence`."""

    @staticmethod
    def in_torch(logits: Tensor, target: Tensor) -> Tensor:
        return (torch.xlogy(target, target) - target * logits.log_softmax(-1)).sum(-1)

    @staticmethod
    def forward(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The divergences, and their derivatives by ``logits``."""
        found, slope = empty(*logits.shape[:-1]), empty(*logits.shape)
        rows, num_atoms = target.shape
        networks = found.numel() // rows if rows else 0
        call("divergence", networks, rows, num_atoms, logits, target, found, slope)
        return found, slope

    @staticmethod
    def backward(tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        return kept * gradients[0].unsqueeze(-1), None
