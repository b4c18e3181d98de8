"""What an update computes between its layers, each as one native call: moving averages, log densities.

torch computes the same on a GPU, without the native library, and where torch intercepts each operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from spreeze_zmq.nn.native_calls import (
    Gradients,
    Tensors,
    call,
    check_shape,
    code_for,
    differentiable,
    empty,
    shape_of_rows,
)

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def polyak(target: torch.nn.Module, source: torch.nn.Module, tau: float | Tensor) -> None:
    """``target += tau * (source - target)``, for all parameters; ``tau`` may be a 0-d tensor. The
    ``running_mean`` and ``running_var`` of layers that keep them become those of ``source``.
    """
    with torch.no_grad():
        flat = [_flat[each] for each in (target, source) if each in _flat]
        if len(flat) == 2:
            flat[0].lerp_(flat[1], tau)
        else:
            followers, leaders = list[Tensor](target.parameters()), list[Tensor](source.parameters())
            shares: Any = [tau] * len(leaders) if torch.is_tensor(tau) else tau
            torch._foreach_lerp_(followers, leaders, shares)
        for follower, leader in _statistics(target, source):
            follower.copy_(leader)


def _statistics(target: torch.nn.Module, source: torch.nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """The running statistics of two modules of one structure, in pairs."""
    if (names := _keepers.get(target)) is None:
        layers = target.named_modules()
        names = [name for name, layer in layers if getattr(layer, "running_mean", None) is not None]
        _keepers[target] = names
    for name in names:
        kept, new = target.get_submodule(name), source.get_submodule(name)
        yield from zip(
            (kept.running_mean, kept.running_var), (new.running_mean, new.running_var), strict=True
        )


_flat: WeakKeyDictionary[torch.nn.Module, Tensor] = WeakKeyDictionary()
#: Threads with which torch takes as long over its passes as native code over its one.
MOST_SCALING_THREADS = 2
#: Of a target, the names of its layers that keep statistics; hardly any has one.
_keepers: WeakKeyDictionary[torch.nn.Module, list[str]] = WeakKeyDictionary()


def laid_flat(module: torch.nn.Module, flat: Tensor) -> None:
    """Declare that the parameters of a module are, for good, consecutive views that fill ``flat``."""
    _flat[module] = flat


def scaled_bytes(x: Tensor, mean: Tensor, std: Tensor, limit: float, *, centred: bool = True) -> Tensor:
    """``(x - mean) / std``, clipped to ``-limit`` to ``limit``; on a CPU torch gives the same bits, and is
    taken where it has threads enough to be faster than native code, which has one.

    Args:
        x: uint8 ``[B, size]``.
        mean: float32 ``[size]``.
        std: likewise.
        limit: infinite for none.
        centred: false if the mean is 0 throughout, which a GPU need not subtract.

    Returns:
        float32 ``[B, size]``.

    Raises:
        ValueError: ``mean`` or ``std`` is not ``[size]``, or ``x`` has not two axes.
    """
    rows, size = shape_of_rows("x", x)
    check_shape("mean", mean, size)
    check_shape("std", std, size)
    by_torch = torch.get_num_threads() > MOST_SCALING_THREADS or code_for(mean, std) is None
    if not x.is_cpu or x.dtype != torch.uint8 or by_torch:
        # Converted first, because subtracting from bytes takes eight times as long.
        scaled = x.to(torch.float32, copy=True)
        scaled = (scaled.sub_(mean) if centred else scaled).div_(std)
        return scaled if math.isinf(limit) else scaled.clamp_(-limit, limit)
    scaled = empty(rows, size)
    call("scale_bytes", rows, size, limit, x.contiguous(), mean, std, scaled)
    return scaled


class PeriodicCopy(torch.nn.Module):
    """Moves a target by ``tau`` at every ``period``-th call of ``update``, and not in between.

    The count is a parameter, so that it is saved with the targets; it is never read on the host. Groups
    average it with all else, so it need not be whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

    @torch.no_grad()
    def update(
        self, target: torch.nn.Module, source: torch.nn.Module, tau: float | Tensor, period: int
    ) -> None:
        """Count this call; if it is a ``period``-th one, do what :func:`polyak` does."""
        due = self.count.add_(1.0) >= period
        self.count.masked_fill_(due, 0.0)
        share = due * tau
        for follower, leader in zip(target.parameters(), source.parameters(), strict=True):
            follower.lerp_(leader, share.to(follower.dtype))
        for kept, new in _statistics(target, source):
            kept.copy_(torch.where(due, new, kept))


def clamped(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """``x`` between two limits, of which one or both may be 0-d tensors; torch's own takes both or none."""
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return x.clamp(min=low).clamp(max=high)
    return x.clamp(low, high)


def squashed_normal(
    output: Tensor, noise: Tensor, low: float | Tensor, high: float | Tensor
) -> tuple[Tensor, Tensor]:
    """``tanh(u)`` with ``u = mean + exp(log_std) * noise`` and ``log_std = low +
    (high - low) / 2 * (tanh(raw) + 1)``, and its log density (arXiv 1812.05905, appendix C).

    Args:
        output: float32 ``[B, 2 A]``, rows of ``[mean, raw]``.
        noise: standard normal numbers, float32 ``[B, A]``.
        low: lowest log standard deviation; 0-d where it moves.
        high: the highest.

    Returns:
        ``[B, A]`` in [-1, 1], and ``[B]``.

    Raises:
        ValueError: ``noise`` is not ``[B, A]``, or ``output`` not ``[B, 2 A]``.
    """
    rows, size = shape_of_rows("noise", noise)
    check_shape("output", output, rows, 2 * size)
    action, log_prob = differentiable(_SquashedNormal(low, high), output, noise, numbers=(low, high))
    return action, log_prob


class _SquashedNormal(NamedTuple):
    """See :class:`Native`; the tensors are those of :func:`squashed_normal`."""

    low: float | Tensor
    high: float | Tensor

    def in_torch(self, output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = output.chunk(2, 1)
        log_std = self.low + 0.5 * (self.high - self.low) * (raw.tanh() + 1.0)
        u = mean + log_std.exp() * noise
        # log(1 - tanh(u)^2), equation 26's second term, in a form that cannot overflow.
        squash = 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))
        return u.tanh(), (-0.5 * noise.square() - log_std - LOG_SQRT_2PI - squash).sum(1)

    def forward(self, output: Tensor, noise: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        rows, size = noise.shape
        action, log_prob, kept = empty(rows, size), empty(rows), empty(rows, 3 * size)
        call("draw", rows, size, *self, output, noise, action, log_prob, kept)
        return (action, log_prob), kept

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        output, noise = tensors
        output_gradient = empty(*output.shape)
        of_action, of_log_prob = (gradient.contiguous() for gradient in gradients)
        call("draw_backward", *noise.shape, *self, kept, of_action, of_log_prob, output_gradient)
        return output_gradient, None


def normal_log_prob(output: Tensor, action: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Log densities of actions under independent normal distributions.

    Args:
        output: float32 ``[B, 2 A]``, rows of ``[mean, log_std]``; ``log_std`` is clipped.
        action: float32 ``[B, A]``.
        low: lowest log standard deviation; 0-d where it moves.
        high: the highest.

    Returns:
        ``[B]``.

    Raises:
        ValueError: ``action`` is not ``[B, A]``, or ``output`` not ``[B, 2 A]``.
    """
    rows, size = shape_of_rows("action", action)
    check_shape("output", output, rows, 2 * size)
    log_prob: Tensor = differentiable(_NormalDensity(low, high), output, action, numbers=(low, high))
    return log_prob


class _NormalDensity(NamedTuple):
    """See :class:`Native`; the tensors are those of :func:`normal_log_prob`."""

    low: float | Tensor
    high: float | Tensor

    def in_torch(self, output: Tensor, action: Tensor) -> Tensor:
        mean, log_std = output.chunk(2, 1)
        log_std = clamped(log_std, self.low, self.high)
        return (-0.5 * ((action - mean) * (-log_std).exp()).square() - log_std - LOG_SQRT_2PI).sum(1)

    def forward(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The log densities, and their derivatives by ``output``."""
        log_prob, slope = empty(len(action)), empty(*output.shape)
        call("density", *action.shape, *self, output, action, log_prob, slope)
        return log_prob, slope

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        return kept * gradients[0].unsqueeze(-1), None
