"""A convolution as one native call forward and one backward."""

from __future__ import annotations

from typing import Any

import torch

from spreeze_zmq.native import recording
from spreeze_zmq.native.library import library
from spreeze_zmq.nn.layers import Conv
from spreeze_zmq.nn.native import are_plain


class NativeConv:
    """A :class:`Conv` as a step of a :class:`NativeSequential`.

    Args:
        module: the layer.

    Attributes:
        inputs: numbers in a row that it takes.
        outputs: in one that it makes.
        layers: what decides how long it takes.
        num: 0: it is not stacked.
        in_bf16: whether its products can be in bf16: no, torch's are then.
    """

    num, in_bf16 = 0, False

    def __init__(self, module: Conv) -> None:
        self.module = module
        self.inputs, self.outputs = module.input_size, module.output_size
        about = [*module.shape, module.output_shape[0], module.weight.shape[2], module.stride]
        self.layers: list[list[int | float]] = [[float(number) for number in about]]
        self._about = torch.tensor(about, dtype=torch.int64)
        self._shapes = [parameter.shape for parameter in self.parameters()]

    def parameters(self) -> list[torch.Tensor]:
        """Weight and bias."""
        return [self.module.weight, self.module.bias]

    def __call__(self, x: torch.Tensor, bf16: bool) -> torch.Tensor:
        """Rows ``[B, inputs]`` to ``[B, outputs]``, both float32; by torch where somebody has changed the
        parameters' form since.
        """
        if bf16:
            return self.in_torch(x).float()
        tensors = x.contiguous(), *self.parameters()
        if [tensor.shape for tensor in tensors[1:]] != self._shapes or not are_plain(tensors):
            return self.in_torch(x)
        out: torch.Tensor = _Convolution.apply(self, *tensors)  # type: ignore[no-untyped-call]
        return out

    def in_torch(self, x: torch.Tensor) -> torch.Tensor:
        """The same by torch."""
        return self.module(x)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Natively."""
        output = torch.empty(len(x), self.outputs)
        self._call("convolve", len(x), x, weight, bias, output)
        return output

    def backward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        of_output: torch.Tensor,
        of_rows: bool,
    ) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """The gradients of ``x``, where ``of_rows``, and of both parameters."""
        of_x = torch.empty_like(x) if of_rows else None
        of_weight, of_bias = torch.empty_like(weight), torch.empty_like(bias)
        self._call("convolve_backward", len(x), x, weight, of_output, of_x, of_weight, of_bias)
        return of_x, of_weight, of_bias

    def _call(self, name: str, rows: int, *tensors: torch.Tensor | None) -> None:
        places = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        recording.call(getattr(library().code, f"spreeze_{name}"), self._about.data_ptr(), rows, *places)


class _Convolution(torch.autograd.Function):
    """One convolution under autograd; ``x`` in one piece."""

    @staticmethod
    def forward(ctx: Any, conv: NativeConv, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        ctx.conv = conv
        ctx.save_for_backward(x, weight, bias)
        return conv.forward(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, of_output: torch.Tensor) -> Any:
        x, weight, bias = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # a graph of the gradients is wanted as well
            chosen = [tensor for tensor, want in zip((x, weight, bias), wanted, strict=True) if want]
            found = iter(torch.autograd.grad(ctx.conv.in_torch(x), chosen, of_output, create_graph=True))
            return None, *(next(found) if want else None for want in wanted)
        return None, *ctx.conv.backward(x, weight, bias, of_output.contiguous(), wanted[0])
