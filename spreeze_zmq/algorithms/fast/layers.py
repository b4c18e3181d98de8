"""The layers of the hand-written networks that have parameters, each for one input: calls to be made in turn.

A layer is made for one input tensor, and so for one number of rows. Making it takes the buffers and views and
binds them to torch's operations; an update then only makes the calls. Between products that sweep the core's
caches everything else that Python would do for a layer costs as much as the smaller operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import torch

Step = Callable[[], object]
#: Brings a tensor to its place.
Store = Callable[[torch.Tensor], object]
#: Gives memory of a shape.
Buffer = Callable[..., torch.Tensor]
#: Of at least so many rows the CPU's float32 product for the weights of few inputs is quicker with the wide
#: side in the rows, turning it included.
TURNED_ROWS = 512


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
        #: ``[E, out, in]``.
        self.weight, bias = parameters
        if not isinstance(output, torch.Tensor):
            output = output(x.shape[0], x.shape[1], self.weight.shape[1])
        self.output = output
        turned = self.weight.transpose(1, 2)
        if by_output:
            rows = output.transpose(1, 2)
            product = _product(self.weight, x.transpose(1, 2), rows)
            self.forward: list[Step] = [product, partial(torch.add, rows, bias.unsqueeze(2), out=rows)]
        elif bias_follows:
            self.forward = [_product(x, turned, output)]
        else:
            self.forward = [partial(torch.baddbmm, bias.unsqueeze(1), x, turned, out=output)]

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> list[Step]:
        """Of weight and bias."""
        assert self._gradients is not None, "this network was made without gradients"
        weight, bias = self._gradients
        # The bias first: the gradient has just been written and is still in the cache.
        of_bias = _sum_of_rows(gradient, bias, add)
        _, num_rows, num_inputs = self._x.shape
        wide = 2 * num_inputs <= gradient.shape[2]
        if _in_cached_code(gradient) and gradient.is_contiguous() and num_rows >= TURNED_ROWS and wide:
            turned = self._temporary(*weight.transpose(1, 2).shape)
            store = weight.add_ if add else weight.copy_
            product = _product(self._x.transpose(1, 2), gradient, turned)
            return [*of_bias, product, partial(store, turned.transpose(1, 2))]
        return [*of_bias, _product(gradient.transpose(1, 2), self._x, weight, add)]

    def backward(self, gradient: torch.Tensor, buffer: Buffer) -> tuple[torch.Tensor, list[Step]]:
        """As the protocol says."""
        result = buffer(*self._x.shape)
        return result, [_product(gradient, self.weight, result)]

    def input_gradient(self, gradient: torch.Tensor, columns: slice, result: torch.Tensor) -> Step:
        """Fill ``result`` ``[E, B, columns]`` with that of some columns of the input."""
        return _product(gradient, self.weight[:, :, columns], result)


class LayerNorm:
    """Rows to mean 0 and variance 1, then scaled and shifted (Ba et al. 2016, arXiv 1607.06450).

    One network after the other, in torch's own kernels: each goes over the rows once, where the operations
    that it stands for would do so four or five times.

    Args:
        x: ``[E, B, size]``.
        parameters: weight and bias, ``[E, size]``; for the CPU in float32 whatever the format of ``x``.
        gradients: of both, or None.
        buffer: memory for the output.
        wide: float32 memory for what no other layer's calls need, two of it.
        eps: added to the variance.
        stored: what brings a result to its place in the output; an activation may be applied on the way.
    """

    def __init__(
        self,
        x: torch.Tensor,
        parameters: tuple[torch.Tensor, torch.Tensor],
        gradients: tuple[torch.Tensor, torch.Tensor] | None,
        buffer: Buffer,
        wide: Buffer,
        eps: float,
        stored: Callable[[torch.Tensor], Store],
    ):
        self._parameters = list(zip(*parameters, strict=True))
        self._gradients = None if gradients is None else list(zip(*gradients, strict=True))
        self._x, self._size, self._eps = x.unbind(), x.shape[2:], eps
        # The CPU's kernel adds up the gradients of the parameters in the format of the rows.
        widened = x.device.type == "cpu" and x.dtype != torch.float32 and gradients is not None
        self._wide = (wide(*x.shape[1:]), wide(*x.shape[1:])) if widened else None
        self.output = buffer(*x.shape)
        # Of each row: its mean, and one over its standard deviation.
        self._moments: list[Sequence[torch.Tensor]] = [()] * len(x)
        self.forward: list[Step] = [
            partial(self._forward, network, stored(output)) for network, output in enumerate(self.output)
        ]

    def _forward(self, network: int, store: Store) -> None:
        weight, bias = self._parameters[network]
        result = torch.native_layer_norm(self._x[network], self._size, weight, bias, self._eps)
        self._moments[network] = result[1:]
        store(result[0])

    def parameter_gradients(self, gradient: torch.Tensor, add: bool) -> list[Step]:
        """Of weight and bias; that of the input, from the same kernel, takes the place of the output's."""
        assert self._gradients is not None, "this network was made without gradients"
        wanted = [[part.add_ if add else part.copy_ for part in pair] for pair in self._gradients]
        return self._backward(gradient, wanted)

    def backward(self, gradient: torch.Tensor, buffer: Buffer) -> tuple[torch.Tensor, list[Step]]:
        """In the gradient's own place."""
        frozen = self._gradients is None
        return gradient, self._backward(gradient, [[]] * len(gradient)) if frozen else []

    def _backward(self, gradient: torch.Tensor, wanted: Sequence[Sequence[Store]]) -> list[Step]:
        return [
            partial(self._backward_of, network, of_output, stores)
            for network, (of_output, stores) in enumerate(zip(gradient, wanted, strict=True))
        ]

    def _backward_of(self, network: int, gradient: torch.Tensor, wanted: Sequence[Store]) -> None:
        rows = gradient, self._x[network]
        if self._wide is not None:
            rows = self._wide[0].copy_(rows[0]), self._wide[1].copy_(rows[1])
        mean, scale = self._moments[network]
        weight, bias = self._parameters[network]
        mask = [True, bool(wanted), bool(wanted)]
        of_x, *others = torch.ops.aten.native_layer_norm_backward(
            *rows, self._size, mean, scale, weight, bias, mask
        )
        gradient.copy_(of_x)
        for store, other in zip(wanted, others, strict=False):
            store(other)


def _product(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor, add: bool = False) -> Step:
    """``[E, m, k]`` times ``[E, k, n]`` into ``[E, m, n]``, or added to it."""
    if len(output) == 1:
        operands = (left[0], right[0])
        if add:
            return partial(torch.addmm, output[0], *operands, out=output[0])
        return partial(torch.mm, *operands, out=output[0])
    if add:
        return partial(torch.baddbmm, output, left, right, out=output)
    return partial(torch.bmm, left, right, out=output)


def _in_cached_code(tensor: torch.Tensor) -> bool:
    """Whether a product of few numbers is quicker than the plain operation. The CPU's in float32 is: in the
    midst of products their code is at hand, while the other's has left the core's caches.
    """
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def _sum_of_rows(rows: torch.Tensor, total: torch.Tensor, add: bool) -> list[Step]:
    """Of ``[E, B, size]`` into ``[E, size]``, or added to it."""
    if _in_cached_code(rows):
        ones = rows.new_ones(len(rows), 1, rows.shape[1])
        return [_product(ones, rows, total.unsqueeze(1), add)]
    if not add:
        return [partial(torch.sum, rows, 1, out=total)]
    part = torch.empty_like(total)
    return [partial(torch.sum, rows, 1, out=part), partial(total.add_, part)]
