"""What an update does between its layers, each as one native call: Adam, moving averages, drawing actions.

On a GPU, without the native library, or where torch looks at each operation, torch computes the same.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any
from weakref import WeakKeyDictionary

import torch

from spreeze_zmq.native import recording
from spreeze_zmq.native.library import library
from spreeze_zmq.nn.native import check_shape, code_for, shape_of_rows

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
#: Adam's first beta and its epsilon, as Kingma and Ba 2014 have them.
BETA1, EPSILON = 0.9, 1e-8


def adam_step(
    parameters: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    steps: torch.Tensor,
    *,
    learning_rate: float,
    beta2: float,
    weight_decay: float,
    num_decaying: int,
    max_gradient_norm: float = 0.0,
) -> None:
    """One step of Adam (arXiv 1412.6980, algorithm 1) with decoupled weight decay (arXiv 1711.05101,
    algorithm 2), all tensors in place; the gradient is zero afterwards.

    Args:
        parameters: float32 ``[P]``.
        gradient: likewise.
        mean: of the gradient, likewise.
        square: mean of its square, likewise.
        steps: 0-d float32, taken before this one.
        learning_rate: step size.
        beta2: how much of ``square`` a step keeps.
        weight_decay: share of the parameters times the step size that a step takes away.
        num_decaying: number of parameters that decay, the first ones.
        max_gradient_norm: a longer gradient is shortened to it first; 0 for never.

    Raises:
        ValueError: the four are not of one size.
    """
    tensors = parameters, gradient, mean, square
    for name, tensor in zip(("gradient", "mean", "square"), tensors[1:], strict=True):
        check_shape(name, tensor, parameters.numel())
    steps.add_(1.0)
    code = code_for(*tensors)
    if code is not None:
        about = (ctypes.c_double * 6)(learning_rate, BETA1, beta2, EPSILON, weight_decay, max_gradient_norm)
        places = [tensor.data_ptr() for tensor in tensors]
        recording.call(
            *(code.spreeze_adam, about, steps.data_ptr(), parameters.numel(), num_decaying, *places)
        )
        return
    if max_gradient_norm:
        gradient.mul_((max_gradient_norm / (gradient.norm() + 1e-6)).clamp_(max=1.0))
    if weight_decay:
        parameters[:num_decaying].mul_(1.0 - learning_rate * weight_decay)
    torch._fused_adam_(
        [parameters],
        [gradient],
        [mean],
        [square],
        [],
        [steps],
        lr=learning_rate,
        beta1=BETA1,
        beta2=beta2,
        weight_decay=0.0,
        eps=EPSILON,
        amsgrad=False,
        maximize=False,
    )
    gradient.zero_()


def polyak(target: torch.nn.Module, source: torch.nn.Module, tau: float) -> None:
    """Move the parameters of ``target`` by the share ``tau`` of the way to those of ``source``, in place."""
    with torch.no_grad():
        pieces = [_flat[each] for each in (target, source) if each in _flat]
        if len(pieces) == 2:
            pieces[0].lerp_(pieces[1], tau)
        else:
            torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


_flat: WeakKeyDictionary[torch.nn.Module, torch.Tensor] = WeakKeyDictionary()


def laid_flat(module: torch.nn.Module, flat: torch.Tensor) -> None:
    """Say that the parameters of a module are views of ``flat``, one behind the other, and stay so."""
    _flat[module] = flat


def squashed_normal(
    output: torch.Tensor, noise: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """``tanh(u)`` of ``u = mean + exp(log_std) * noise``, with ``log_std = low +
    (high - low) / 2 * (tanh(raw) + 1)``, and the log density of the result (arXiv 1812.05905, appendix C).

    Args:
        output: float32 ``[B, 2 A]``, rows of ``[mean, raw]``.
        noise: standard normal numbers, float32 ``[B, A]``; no gradient flows into it.
        low: lowest log standard deviation.
        high: the highest.

    Returns:
        ``[B, A]`` in [-1, 1], and ``[B]``; both differentiable by ``output``.

    Raises:
        ValueError: ``noise`` is not rows and columns, or ``output`` not two columns for each of its.
    """
    rows, size = shape_of_rows("noise", noise)
    check_shape("output", output, rows, 2 * size)
    if code_for(output, noise) is None:
        return _squashed_in_torch(output, noise, low, high)
    if not (output.requires_grad and torch.is_grad_enabled()):
        action, log_prob, _ = _drawn(output, noise, low, high)
        return action, log_prob
    action, log_prob = _SquashedNormal.apply(output, noise, low, high)  # type: ignore[no-untyped-call]
    return action, log_prob


def _squashed_in_torch(
    output: torch.Tensor, noise: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    mean, raw = output.chunk(2, 1)
    log_std = low + 0.5 * (high - low) * (raw.tanh() + 1.0)
    u = mean + log_std.exp() * noise
    # log(1 - tanh(u)^2), equation 26's second term, in a form that cannot overflow.
    squash = 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))
    return u.tanh(), (-0.5 * noise.square() - log_std - LOG_SQRT_2PI - squash).sum(1)


def _drawn(
    output: torch.Tensor, noise: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same natively, and what the way back needs."""
    rows, size = noise.shape
    made = torch.empty(rows, size), torch.empty(rows), torch.empty(rows, 3 * size)
    places = [tensor.data_ptr() for tensor in (output, noise, *made)]
    recording.call(library().code.spreeze_draw, rows, size, low, high, *places)
    return made


class _SquashedNormal(torch.autograd.Function):
    """The same as one native call forward and one backward."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, noise: torch.Tensor, low: float, high: float) -> Any:
        action, log_prob, ctx.kept = _drawn(output, noise, low, high)
        ctx.save_for_backward(output, noise)
        ctx.limits = low, high
        return action, log_prob

    @staticmethod
    def backward(ctx: Any, of_action: torch.Tensor, of_log_prob: torch.Tensor) -> Any:
        output, noise = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph of the gradients is wanted as well
            both = _squashed_in_torch(output, noise, *ctx.limits)
            return (
                *torch.autograd.grad(both, output, (of_action, of_log_prob), create_graph=True),
                *[None] * 3,
            )
        of_output = torch.empty(output.shape)
        given = of_action.contiguous(), of_log_prob.contiguous()
        places = (tensor.data_ptr() for tensor in (ctx.kept, *given, of_output))
        recording.call(library().code.spreeze_draw_backward, *noise.shape, *ctx.limits, *places)
        return of_output, None, None, None


def normal_log_prob(output: torch.Tensor, action: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Log densities of actions under independent normal distributions.

    Args:
        output: float32 ``[B, 2 A]``, rows of ``[mean, log_std]``; log standard deviations are clipped.
        action: float32 ``[B, A]``; no gradient flows into it.
        low: lowest log standard deviation.
        high: the highest.

    Returns:
        ``[B]``, differentiable by ``output``.

    Raises:
        ValueError: ``action`` is not rows and columns, or ``output`` not two columns for each of its.
    """
    rows, size = shape_of_rows("action", action)
    check_shape("output", output, rows, 2 * size)
    if code_for(output, action) is None:
        return _normal_in_torch(output, action, low, high)
    if not (output.requires_grad and torch.is_grad_enabled()):
        return _density(output, action, low, high)[0]
    log_prob: torch.Tensor = _NormalDensity.apply(output, action, low, high)  # type: ignore[no-untyped-call]
    return log_prob


def _normal_in_torch(output: torch.Tensor, action: torch.Tensor, low: float, high: float) -> torch.Tensor:
    mean, log_std = output.chunk(2, 1)
    log_std = log_std.clamp(low, high)
    return (-0.5 * ((action - mean) * (-log_std).exp()).square() - log_std - LOG_SQRT_2PI).sum(1)


def _density(
    output: torch.Tensor, action: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same natively, and its derivative by ``output``."""
    log_prob, slope = torch.empty(len(action)), torch.empty(output.shape)
    places = [tensor.data_ptr() for tensor in (output, action, log_prob, slope)]
    recording.call(library().code.spreeze_density, *action.shape, low, high, *places)
    return log_prob, slope


class _NormalDensity(torch.autograd.Function):
    """The same as one native call, whose derivative is known with it."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, action: torch.Tensor, low: float, high: float) -> Any:
        log_prob, ctx.slope = _density(output, action, low, high)
        ctx.save_for_backward(output, action)
        ctx.limits = low, high
        return log_prob

    @staticmethod
    def backward(ctx: Any, of_log_prob: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # a graph of the gradients is wanted as well
            output, action = ctx.saved_tensors
            log_prob = _normal_in_torch(output, action, *ctx.limits)
            again = torch.autograd.grad(log_prob, output, of_log_prob, create_graph=True)
            return (*again, *[None] * 3)
        return ctx.slope * of_log_prob.unsqueeze(1), None, None, None
