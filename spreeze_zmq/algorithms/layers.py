"""The layers of the hand-written networks that have parameters: forward, and backward into flat gradients."""

from __future__ import annotations

from typing import Protocol

import torch

from spreeze_zmq.algorithms.scratch import Scratch, transposed


class Layer(Protocol):
    """One step of the network. ``backward`` may overwrite what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[E, B, in]`` to ``[E, B, out]``."""

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> None:
        """From the gradient of the output of the last ``forward``, write or add those of the parameters."""

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the input from that of the output."""


class Linear:
    """``E`` affine maps, each ``[B, in]`` to ``[B, out]``.

    With ``bias_follows`` the bias is not added: the activation behind it does.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor,
        gradients: tuple[torch.Tensor, ...] | None,
        output: Scratch,
        input_gradient: Scratch,
        columns: slice = slice(None),
        bias_follows: bool = False,
    ):
        self.weight = weight  # [E, out, in]
        self.bias = bias  # [E, out]
        self.gradients = gradients
        self._transposed = weight.transpose(1, 2)
        self._row_bias = None if bias_follows else bias.unsqueeze(1)
        self._backward_weight = weight[:, :, columns]
        self._output = output
        self._input_gradient = input_gradient
        self._x = weight.new_empty(0)
        self._x_transposed, self._gradient_transposed = transposed(), transposed()
        # The CPU's float32 kernel took three times as long for a single column as for a single row.
        on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
        self._one_column = on_cpu and weight.shape[1] == 1
        self._narrow = on_cpu and 2 * weight.shape[2] <= weight.shape[1]
        self._turned, self._turned_back = Scratch(weight.dtype, weight.device), transposed()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[E, B, in]`` to ``[E, B, out]``."""
        self._x = x
        num_networks, num_rows, _ = x.shape
        if self._row_bias is None:
            output = self._output(num_networks, num_rows, self.weight.shape[1])
            return torch.bmm(x, self._transposed, out=output)
        if self._one_column:
            row = self._output(num_networks, 1, num_rows)
            torch.baddbmm(self._row_bias, self.weight, self._x_transposed(x), out=row)
            return self._output(num_networks, num_rows, 1)
        output = self._output(num_networks, num_rows, self.weight.shape[1])
        return torch.baddbmm(self._row_bias, x, self._transposed, out=output)

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> None:
        """Of weight and bias."""
        assert self.gradients is not None, "this network was made without gradients"
        weight, bias = self.gradients
        # The bias first: the gradient has just been written and is still in the cache.
        if add:
            bias.add_(gradient.sum(1))
        else:
            torch.sum(gradient, 1, out=bias)
        if self._narrow:
            # The CPU's float32 kernel is twice as fast where the wide side lies in the rows.
            turned = self._turned(weight.shape[0], weight.shape[2], weight.shape[1])
            torch.bmm(self._x_transposed(self._x), gradient, out=turned)
            (weight.add_ if add else weight.copy_)(self._turned_back(turned))
        elif add:
            torch.baddbmm(weight, self._gradient_transposed(gradient), self._x, out=weight)
        else:
            torch.bmm(self._gradient_transposed(gradient), self._x, out=weight)

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the input, of those of its columns that are wanted."""
        num_networks, num_rows, _ = gradient.shape
        output = self._input_gradient(num_networks, num_rows, self._backward_weight.shape[2])
        if self._one_column:
            return torch.mul(gradient, self._backward_weight, out=output)
        return torch.bmm(gradient, self._backward_weight, out=output)


class LayerNorm:
    """Rows to mean 0 and variance 1, then scaled and shifted (Ba et al. 2016, arXiv 1607.06450)."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor, eps: float, gradients: tuple[torch.Tensor, ...] | None
    ):
        self.weight = weight.unsqueeze(1)  # [E, 1, size]
        self.bias = bias.unsqueeze(1)
        self.eps = eps
        self.gradients = gradients
        self._saved: tuple[torch.Tensor, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[E, B, size]`` to the same."""
        normal, mean, scale = torch.native_layer_norm(x, x.shape[-1:], None, None, self.eps)
        self._saved = (x, normal, mean, scale)
        return torch.addcmul(self.bias, normal, self.weight)

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> None:
        """Of weight and bias."""
        assert self.gradients is not None, "this network was made without gradients"
        weight, bias = self.gradients
        if add:
            weight.add_((gradient * self._saved[1]).sum(1))
            bias.add_(gradient.sum(1))
        else:
            torch.sum(gradient * self._saved[1], 1, out=weight)
            torch.sum(gradient, 1, out=bias)

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the input."""
        x, _, mean, scale = self._saved
        result: torch.Tensor = torch.ops.aten.native_layer_norm_backward(
            gradient * self.weight, x, x.shape[-1:], mean, scale, None, None, [True, False, False]
        )[0]
        return result
