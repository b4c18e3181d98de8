"""The layers of the hand-written networks that have parameters, each for one input: calls to be made in turn.

A layer is made for one input tensor, and so for one number of rows. Making it takes the buffers and views and
binds them to torch's operations; an update then only makes the calls. Between products that sweep the core's
caches everything else that Python would do for a layer costs as much as the smaller operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import torch

Step = Callable[[], object]
#: Gives memory of a shape.
Buffer = Callable[..., torch.Tensor]


def run(steps: Iterable[Step]) -> None:
    """One after the other."""
    for step in steps:
        step()


class Layer(Protocol):
    """One step of the networks."""

    #: ``[E, B, out]``.
    output: torch.Tensor
    #: Fill ``output`` from the input, which they may overwrite.
    forward: list[Step]

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> list[Step]:
        """From the gradient of the output, fill those of the parameters or add to them."""

    def backward(self, gradient: torch.Tensor, buffer: Buffer) -> tuple[torch.Tensor, list[Step]]:
        """The gradient of the input from that of the output, which may be overwritten."""


class Linear:
    """``E`` affine maps of ``x`` ``[E, B, in]``.

    Args:
        x: the input.
        parameters: weight ``[E, out, in]`` and bias ``[E, out]``.
        gradients: of both, or None.
        output: ``[E, B, out]``, or what gives it memory.
        temporary: memory for what no other layer's calls need.
        bias_follows: the bias is not added: the activation behind does it.
        by_output: the output lies as ``[E, out, B]`` in memory. The CPU's float32 kernel takes a third of the
            time for a single output so.
    """

    def __init__(
        self,
        x: torch.Tensor,
        parameters: tuple[torch.Tensor, torch.Tensor],
        gradients: tuple[torch.Tensor, torch.Tensor] | None,
        output: Buffer | torch.Tensor,
        temporary: Buffer,
        bias_follows: bool = False,
        by_output: bool = False,
    ):
        self._x, self._gradients, self._temporary = x, gradients, temporary
        self._weight, bias = parameters
        num_networks, num_rows, num_inputs = x.shape
        num_outputs = self._weight.shape[1]
        on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
        self._narrow = on_cpu and 2 * num_inputs <= num_outputs
        if not isinstance(output, torch.Tensor):
            output = output(num_networks, num_rows, num_outputs)
        self.output = output
        operands = (x, self._weight.transpose(1, 2))
        if bias_follows:
            step = partial(torch.bmm, *operands, out=output)
        elif by_output:
            operands = (self._weight, x.transpose(1, 2))
            step = partial(torch.baddbmm, bias.unsqueeze(2), *operands, out=output.transpose(1, 2))
        else:
            step = partial(torch.baddbmm, bias.unsqueeze(1), *operands, out=output)
        self.forward: list[Step] = [step]

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> list[Step]:
        """Of weight and bias."""
        assert self._gradients is not None, "this network was made without gradients"
        weight, bias = self._gradients
        # The bias first: the gradient has just been written and is still in the cache.
        steps = _sum_of_rows(gradient, bias, add)
        if self._narrow:
            # The CPU's float32 kernel is quicker where the wide side lies in the rows.
            turned = self._temporary(weight.shape[0], weight.shape[2], weight.shape[1])
            store = weight.add_ if add else weight.copy_
            product = partial(torch.bmm, self._x.transpose(1, 2), gradient, out=turned)
            return [*steps, product, partial(store, turned.transpose(1, 2))]
        operands = (gradient.transpose(1, 2), self._x)
        if add:
            return [*steps, partial(torch.baddbmm, weight, *operands, out=weight)]
        return [*steps, partial(torch.bmm, *operands, out=weight)]

    def backward(self, gradient: torch.Tensor, buffer: Buffer) -> tuple[torch.Tensor, list[Step]]:
        """As the protocol says."""
        result = buffer(*self._x.shape)
        multiply = torch.mul if gradient.shape[2] == 1 else torch.bmm
        return result, [partial(multiply, gradient, self._weight, out=result)]

    def input_gradient(
        self, gradient: torch.Tensor, total: torch.Tensor, columns: slice, add: bool
    ) -> list[Step]:
        """Of some columns of rows that all networks share: the sum over the networks fills ``total`` ``[B,
        columns]`` or is added to it.
        """
        weight = self._weight[:, :, columns]
        if len(gradient) == 1 and gradient.dtype == total.dtype:
            rows = total.unsqueeze(0)
            if add:
                return [partial(torch.baddbmm, rows, gradient, weight, out=rows)]
            return [partial(torch.bmm, gradient, weight, out=rows)]
        assert not add
        each = self._temporary(len(gradient), *total.shape)
        return [
            partial(torch.bmm, gradient, weight, out=each),
            partial(torch.sum, each, 0, dtype=total.dtype, out=total),
        ]


class LayerNorm:
    """Rows to mean 0 and variance 1, then scaled and shifted (Ba et al. 2016, arXiv 1607.06450).

    Args:
        x: ``[E, B, size]``.
        parameters: weight and bias, ``[E, size]``.
        gradients: of both, or None.
        buffer: memory for the output.
        temporary: memory for what no other layer's calls need.
        eps: added to the variance.
    """

    def __init__(
        self,
        x: torch.Tensor,
        parameters: tuple[torch.Tensor, torch.Tensor],
        gradients: tuple[torch.Tensor, torch.Tensor] | None,
        buffer: Buffer,
        temporary: Buffer,
        eps: float,
    ):
        self._x, self._gradients, self._temporary = x, gradients, temporary
        self._weight, self._bias = (parameter.unsqueeze(1) for parameter in parameters)
        self._eps = eps
        self._saved: tuple[torch.Tensor, ...] = ()
        self.output = buffer(*x.shape)
        self.forward: list[Step] = [self._forward]

    def _forward(self) -> None:
        self._saved = torch.native_layer_norm(self._x, self._x.shape[-1:], None, None, self._eps)
        torch.addcmul(self._bias, self._saved[0], self._weight, out=self.output)

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> list[Step]:
        """Of weight and bias."""
        assert self._gradients is not None, "this network was made without gradients"
        weight, bias = self._gradients
        product = self._temporary(*gradient.shape)
        return [
            lambda: torch.mul(gradient, self._saved[0], out=product),
            *_sum_of_rows(product, weight, add),
            *_sum_of_rows(gradient, bias, add),
        ]

    def backward(self, gradient: torch.Tensor, buffer: Buffer) -> tuple[torch.Tensor, list[Step]]:
        """In the gradient's own place."""
        return gradient, [partial(self._backward, gradient)]

    def _backward(self, gradient: torch.Tensor) -> None:
        _, mean, scale = self._saved
        size, wanted = self._x.shape[-1:], [True, False, False]
        of_x = torch.ops.aten.native_layer_norm_backward(
            gradient.mul_(self._weight), self._x, size, mean, scale, None, None, wanted
        )[0]
        gradient.copy_(of_x)


def _sum_of_rows(rows: torch.Tensor, total: torch.Tensor, add: bool) -> list[Step]:
    """Of ``[E, B, size]`` into ``[E, size]``."""
    if not add:
        return [partial(torch.sum, rows, 1, out=total)]
    part = torch.empty_like(total)
    return [partial(torch.sum, rows, 1, out=part), partial(total.add_, part)]
