"""What an update computes between its layers, each as one native call: Adam, moving averages, log densities.

torch computes the same on a GPU, without the native library, and where torch intercepts each operation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
#: Adam's epsilon, as Kingma and Ba 2014 have it.
EPSILON = 1e-8

#: A GPU's multiprocessor steps one piece of the parameters at a time: numbers in a piece, and pieces.
SMALLEST_PIECE, MOST_PIECES = 4096, 144


class Adam:
    """Adam (arXiv 1412.6980, algorithm 1) with decoupled weight decay (arXiv 1711.05101, algorithm 2) over
    one flat buffer.

    Args:
        parameters: float32 ``[P]``, stepped in place.
        gradient: float32 ``[P]``, read at each step and zero afterwards.
        learning_rate: step size.
        beta1: decay rate of the mean gradient.
        beta2: decay rate of the mean squared gradient.
        weight_decay: a step shrinks the parameters by this times the step size.
        num_weights: number of parameters that decay and whose gradient is scaled down, the first ones; all by
            default.
        max_gradient_norm: longer gradients of these are scaled down to this norm; 0 for never.

    Attributes:
        moving: whether the numbers change while steps are replayed from a recording.
        numbers: ``[6]`` on the parameters' device: learning rate, both betas, epsilon, weight decay and
            largest norm.

    Raises:
        ValueError: ``gradient`` has another size than ``parameters``.
    """

    def __init__(
        self,
        parameters: Tensor,
        gradient: Tensor,
        learning_rate: float,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
        num_weights: int | None = None,
        max_gradient_norm: float = 0.0,
    ) -> None:
        check_shape("gradient", gradient, parameters.numel())
        code_for(parameters, gradient)  # compiles the library now if needed, not within the first step
        self._stated = [learning_rate, beta1, beta2, EPSILON, weight_decay, max_gradient_norm]
        # Native code reads doubles; torch's kernel on a GPU reads a float.
        dtype = torch.float64 if parameters.is_cpu else torch.float32
        self.numbers = torch.tensor(self._stated, dtype=dtype, device=parameters.device)
        self.moving = False
        self._num_weights = len(parameters) if num_weights is None else num_weights
        self._parameters, self._gradient = parameters, gradient
        self._moments = {"mean": torch.zeros_like(parameters), "square": torch.zeros_like(parameters)}
        self._steps = torch.zeros((), dtype=torch.float32, device=parameters.device)
        size = max(SMALLEST_PIECE, -(-len(parameters) // MOST_PIECES) // 4 * 4 + 4)
        whole = parameters, gradient, *self._moments.values()
        self._pieces = [list(torch.split(each, size)) for each in whole]

    @property
    def learning_rate(self) -> float:
        """The step size; waits for a device where steps change it."""
        return self.numbers[0].item() if self.moving else self._stated[0]

    def set(self, learning_rate: float, weight_decay: float, max_gradient_norm: float) -> None:
        """Use other numbers from the next step on; unless they are ``moving``, one that is recorded anew."""
        changed = {0: learning_rate, 4: weight_decay, 5: max_gradient_norm}
        for place, number in changed.items():
            if self._stated[place] != number:
                self._stated[place] = number
                self.numbers[place] = number

    def multiply_rate(self, factor: Tensor, low: float, high: float) -> None:
        """Multiply the step size by a factor, 0-d, within bounds; in a recording, too."""
        self.moving = True
        self.numbers[0].mul_(factor).clamp_(low, high)

    def restore_rate(self, rate: float | None) -> None:
        """Go on with a step size that :meth:`multiply_rate` had made, or with the one that was set."""
        self.moving = True
        self.numbers[0] = self._stated[0] if rate is None else rate

    def step(self) -> None:
        """Move the parameters by the gradient."""
        self._steps.add_(1.0)
        tensors = self._parameters, self._gradient, *self._moments.values()
        if code_for(*tensors) is None:
            self._step_in_torch()
            return
        call("adam", self.numbers, self._steps, self._parameters.numel(), self._num_weights, *tensors)

    def _step_in_torch(self) -> None:
        weights, gradient = self._parameters[: self._num_weights], self._gradient[: self._num_weights]
        stated: list[Any] = list(self.numbers) if self.moving else self._stated
        rate, decay, longest = stated[0], *stated[4:]
        if self.moving or longest:
            scale = (longest / (gradient.norm() + 1e-6)).clamp_(max=1.0)
            gradient.mul_(torch.where(longest > 0.0, scale, 1.0) if self.moving else scale)
        if self.moving or decay:
            weights.mul_(1.0 - rate * decay)
        pieces, gradients, means, squares = self._pieces
        torch._fused_adam_(
            pieces,
            gradients,
            means,
            squares,
            [],
            [self._steps] * len(pieces),
            lr=rate,
            beta1=self._stated[1],
            beta2=self._stated[2],
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
        self._gradient.zero_()

    @property
    def moments(self) -> dict[str, Tensor]:
        """Both moments ``[P]`` and the number of steps, 0-d, by name; the memory that steps write to."""
        return {**self._moments, "steps": self._steps}

    def state_dict(self) -> dict[str, Any]:
        """Copies of :attr:`moments`."""
        return {name: tensor.clone() for name, tensor in self.moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, tensor in self.moments.items():
            tensor.copy_(state[name])


def polyak(target: torch.nn.Module, source: torch.nn.Module, tau: float | Tensor) -> None:
    """``target += tau * (source - target)``, for all parameters; ``tau`` may be a 0-d tensor."""
    with torch.no_grad():
        flat = [_flat[each] for each in (target, source) if each in _flat]
        if len(flat) == 2:
            flat[0].lerp_(flat[1], tau)
        else:
            followers, leaders = list[Tensor](target.parameters()), list[Tensor](source.parameters())
            shares: Any = [tau] * len(leaders) if torch.is_tensor(tau) else tau
            torch._foreach_lerp_(followers, leaders, shares)


_flat: WeakKeyDictionary[torch.nn.Module, Tensor] = WeakKeyDictionary()


def laid_flat(module: torch.nn.Module, flat: Tensor) -> None:
    """Declare that the parameters of a module are, for good, consecutive views that fill ``flat``."""
    _flat[module] = flat


class PeriodicCopy(torch.nn.Module):
    """Moves a target by ``tau`` at every ``period``-th call of ``update``, and not in between.

    The count is a parameter, so that it is saved with the targets; it is never read on the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

    @torch.no_grad()
    def update(
        self, target: torch.nn.Module, source: torch.nn.Module, tau: float | Tensor, period: int
    ) -> None:
        """Count this call; if it is a ``period``-th one, do what :func:`polyak` does."""
        self.count.add_(1.0).remainder_(period)
        share = (self.count == 0.0) * tau
        for follower, leader in zip(target.parameters(), source.parameters(), strict=True):
            follower.lerp_(leader, share.to(follower.dtype))


def squashed_normal(output: Tensor, noise: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """``tanh(u)`` with ``u = mean + exp(log_std) * noise`` and ``log_std = low +
    (high - low) / 2 * (tanh(raw) + 1)``, and its log density (arXiv 1812.05905, appendix C).

    Args:
        output: float32 ``[B, 2 A]``, rows of ``[mean, raw]``.
        noise: standard normal numbers, float32 ``[B, A]``.
        low: lowest log standard deviation.
        high: the highest.

    Returns:
        ``[B, A]`` in [-1, 1], and ``[B]``.

    Raises:
        ValueError: ``noise`` is not ``[B, A]``, or ``output`` not ``[B, 2 A]``.
    """
    rows, size = shape_of_rows("noise", noise)
    check_shape("output", output, rows, 2 * size)
    action, log_prob = differentiable(_SquashedNormal(low, high), output, noise)
    return action, log_prob


class _SquashedNormal(NamedTuple):
    """See :class:`Native`; the tensors are those of :func:`squashed_normal`."""

    low: float
    high: float

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


def normal_log_prob(output: Tensor, action: Tensor, low: float, high: float) -> Tensor:
    """Log densities of actions under independent normal distributions.

    Args:
        output: float32 ``[B, 2 A]``, rows of ``[mean, log_std]``; ``log_std`` is clipped.
        action: float32 ``[B, A]``.
        low: lowest log standard deviation.
        high: the highest.

    Returns:
        ``[B]``.

    Raises:
        ValueError: ``action`` is not ``[B, A]``, or ``output`` not ``[B, 2 A]``.
    """
    rows, size = shape_of_rows("action", action)
    check_shape("output", output, rows, 2 * size)
    log_prob: Tensor = differentiable(_NormalDensity(low, high), output, action)
    return log_prob


class _NormalDensity(NamedTuple):
    """See :class:`Native`; the tensors are those of :func:`normal_log_prob`."""

    low: float
    high: float

    def in_torch(self, output: Tensor, action: Tensor) -> Tensor:
        mean, log_std = output.chunk(2, 1)
        log_std = log_std.clamp(self.low, self.high)
        return (-0.5 * ((action - mean) * (-log_std).exp()).square() - log_std - LOG_SQRT_2PI).sum(1)

    def forward(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The log densities, and their derivatives by ``output``."""
        log_prob, slope = empty(len(action)), empty(*output.shape)
        call("density", *action.shape, *self, output, action, log_prob, slope)
        return log_prob, slope

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        return kept * gradients[0].unsqueeze(-1), None
