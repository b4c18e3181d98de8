"""The activation functions and their gradients, in place wherever the gradient can be had from the output."""

from __future__ import annotations

from collections.abc import Callable

import torch

from spreeze_zmq.algorithms.scratch import Scratch

aten = torch.ops.aten


class Activation:
    """One elementwise function between the layers. It overwrites its input, and ``backward`` its gradient.

    Args:
        kind: relu, elu, tanh or silu.
        like: a tensor of the format and device that it will work on.
        bias: ``[E, size]``, added to the input first; only where ``takes_bias``.
    """

    def __init__(self, kind: str, like: torch.Tensor, bias: torch.Tensor | None = None):
        self._forward, self._backward = FUNCTIONS[kind]
        if bias is not None:
            self._forward = _biased_relu(bias.unsqueeze(1))
        if kind == "relu" and like.dtype == torch.bfloat16 and like.device.type == "cpu":
            self._forward, self._backward = _relu_bits, _relu_bits_backward
        self._second = Scratch(like.dtype, like.device)
        self._saved = like

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[E, B, size]`` to the same."""
        output, self._saved = self._forward(x, self._second)
        return output

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> None:
        """An activation has no parameters."""

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the input."""
        self._backward(gradient, self._saved)
        return gradient


def takes_bias(kind: str, like: torch.Tensor) -> bool:
    """Whether the bias is added faster here than by the product before: the CPU's float32 product writes it
    into its output first and reads it again, which took two thirds as long as a product of 1,024 x 23 x 256.
    """
    return kind == "relu" and like.dtype == torch.float32 and like.device.type == "cpu"


#: (x, spare buffer) to (output, what backward needs).
Forward = Callable[[torch.Tensor, Scratch], tuple[torch.Tensor, torch.Tensor]]
#: (gradient, saved): turns the output's gradient into the input's, in place.
Backward = Callable[[torch.Tensor, torch.Tensor], object]


def _in_place(function: Callable[[torch.Tensor], torch.Tensor]) -> Forward:
    def forward(x: torch.Tensor, _: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
        function(x)
        return x, x

    return forward


def _biased_relu(bias: torch.Tensor) -> Forward:
    def forward(x: torch.Tensor, _: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
        torch._add_relu_(x, bias)  # one pass
        return x, x

    return forward


def _silu(x: torch.Tensor, second: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
    # Not monotone: its input cannot be found from its output, so it is the one function that needs a second
    # buffer.
    return aten.silu.out(x, out=second(*x.shape)), x


def _relu_bits(x: torch.Tensor, _: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
    # A bf16 number and the int16 of its bits have the same sign, so this is relu; the CPU's bf16 kernel
    # converts to float32 and back and takes four times as long.
    x.view(torch.int16).clamp_min_(0)
    return x, x


def _relu_bits_backward(gradient: torch.Tensor, saved: torch.Tensor) -> object:
    bits = gradient.view(torch.int16)
    return aten.threshold_backward.grad_input(bits, saved.view(torch.int16), 0, grad_input=bits)


FUNCTIONS: dict[str, tuple[Forward, Backward]] = {
    "relu": (_in_place(torch.relu_), lambda g, y: aten.threshold_backward.grad_input(g, y, 0, grad_input=g)),
    "elu": (
        _in_place(torch.nn.functional.elu_),
        lambda g, y: aten.elu_backward.grad_input(g, 1.0, 1.0, 1.0, True, y, grad_input=g),
    ),
    "tanh": (_in_place(torch.tanh_), lambda g, y: aten.tanh_backward.grad_input(g, y, grad_input=g)),
    "silu": (_silu, lambda g, x: aten.silu_backward.grad_input(g, x, grad_input=g)),
}
