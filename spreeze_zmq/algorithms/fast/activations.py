"""The activation functions and their gradients, in place wherever the gradient can be had from the output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from spreeze_zmq.algorithms.fast.layers import Buffer, Step, Store

aten = torch.ops.aten
#: What ``stored`` applies.
STORED = ("relu",)


class Activation:
    """One elementwise function between the layers. It overwrites its input, and ``backward`` its gradient.

    Args:
        kind: relu, elu, tanh or silu.
        x: ``[E, B, size]``.
        buffer: for the output, where it may not take the place of ``x``.
        bias: ``[E, size]``, added to the input first; only where ``takes_bias``.
        applied: ``x`` came by way of ``stored``.
    """

    def __init__(
        self,
        kind: str,
        x: torch.Tensor,
        buffer: Buffer,
        bias: torch.Tensor | None = None,
        applied: bool = False,
    ):
        on_bits = kind == "relu" and _is_of_bits(x)
        self.output = self._saved = x
        self._backward = _relu_bits_backward if on_bits else BACKWARD[kind]
        self.forward: list[Step]
        if applied:
            self.forward = []
        elif on_bits:
            self.forward = [partial(x.view(torch.int16).clamp_min_, 0)]
        elif bias is not None:
            self.forward = [partial(torch._add_relu_, x, bias.unsqueeze(1))]  # one pass
        elif kind == "silu":
            # Not monotone: its input cannot be found from its output.
            self.output = buffer(*x.shape)
            self.forward = [partial(aten.silu.out, x, out=self.output)]
        else:
            self.forward = [partial(FORWARD[kind], x)]

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> list[Step]:
        """An activation has no parameters."""
        return []

    def backward(self, gradient: torch.Tensor, buffer: Buffer) -> tuple[torch.Tensor, list[Step]]:
        """In the gradient's own place."""
        return gradient, [self._backward(gradient, self._saved, gradient)]

    def backward_of_row(self, row: torch.Tensor) -> tuple[torch.Tensor, list[Step]]:
        """From the gradient ``row`` ``[E, 1, size]``, which is that of every row of the output; in the place
        of what was saved for it.
        """
        return self._saved, [self._backward(row.expand_as(self._saved), self._saved, self._saved)]


def takes_bias(kind: str, like: torch.Tensor) -> bool:
    """Whether the bias is added faster here than by the product before: the CPU's float32 product writes it
    into its output first and reads it again, which took two thirds as long as a product of 1,024 x 23 x 256.
    """
    return kind == "relu" and like.dtype == torch.float32 and like.device.type == "cpu"


def stored(kind: str, output: torch.Tensor) -> Store:
    """What brings a tensor to ``output``, and applies the activation on the way where it is in ``STORED``."""
    if kind not in STORED:
        return output.copy_
    if _is_of_bits(output):
        bits = output.view(torch.int16)
        return lambda x: torch.clamp_min(x.view(torch.int16), 0, out=bits)
    return lambda x: torch.clamp_min(x, 0, out=output)


def _is_of_bits(x: torch.Tensor) -> bool:
    """Whether relu works on the int16 of the bits, which has the sign of the bf16 number: the CPU's bf16
    kernel converts to float32 and back and takes four times as long.
    """
    return x.dtype == torch.bfloat16 and x.device.type == "cpu"


def _relu_bits_backward(gradient: torch.Tensor, saved: torch.Tensor, result: torch.Tensor) -> Step:
    bits, saved, result = (tensor.view(torch.int16) for tensor in (gradient, saved, result))
    return partial(aten.threshold_backward.grad_input, bits, saved, 0, grad_input=result)


#: In place.
FORWARD: dict[str, Callable[[torch.Tensor], object]] = {
    "relu": torch.relu_,
    "elu": torch.nn.functional.elu_,
    "tanh": torch.tanh_,
}
#: From (gradient, saved, result) the call that fills ``result`` with the input's gradient.
BACKWARD: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Step]] = {
    "relu": lambda g, y, r: partial(aten.threshold_backward.grad_input, g, y, 0, grad_input=r),
    "elu": lambda g, y, r: partial(aten.elu_backward.grad_input, g, 1.0, 1.0, 1.0, True, y, grad_input=r),
    "tanh": lambda g, y, r: partial(aten.tanh_backward.grad_input, g, y, grad_input=r),
    "silu": lambda g, x, r: partial(aten.silu_backward.grad_input, g, x, grad_input=r),
}
