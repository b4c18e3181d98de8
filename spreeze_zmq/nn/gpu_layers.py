"""A run of layers on a GPU with few kernels: each product with its bias and a ReLU in it, factors of a width
that tensor cores take, all parameters rounded at once, and gradients of the bias as products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from spreeze_zmq.nn.native_calls import Gradients, Tensors, accumulators

aten = torch.ops.aten

#: Columns of a product's factors are filled up to a multiple of this, as tensor cores take them.
WIDTH = 8
#: Sums over more rows than this are products one by one, which a GPU divides among its cores; shorter ones
#: are a batch of products, which takes one launch.
LONG = 16_384
#: A run's outputs, if there are no more, are summed in float32 and stay so: in bf16 a value of 300 would be
#: one of 301. More are logits, which are small.
NARROW = 32
#: Numbers of a parameter that one of a GPU's cores rounds.
PIECE = 4096
#: Each activation, whether its module works in place or not.
FORWARD: dict[type[torch.nn.Module], Any] = {
    torch.nn.ReLU: torch.relu,
    torch.nn.ELU: functional.elu,
    torch.nn.Tanh: torch.tanh,
    torch.nn.SiLU: functional.silu,
}
#: The derivative of each, from the gradient and what the layer has kept of it.
BACKWARD: dict[type[torch.nn.Module], Any] = {
    torch.nn.ReLU: lambda gradient, kept: aten.threshold_backward(gradient, kept, 0),
    torch.nn.ELU: lambda gradient, kept: aten.elu_backward(gradient, 1, 1, 1, True, kept),
    torch.nn.Tanh: lambda gradient, kept: aten.tanh_backward(gradient, kept),
    torch.nn.SiLU: lambda gradient, kept: aten.silu_backward(gradient, kept),
}


class GpuLayer(NamedTuple):
    """One linear layer and what follows it.

    Attributes:
        norm: the layer norm, or None.
        activation: the activation, or None.
    """

    norm: Any
    activation: torch.nn.Module | None


class Kept(NamedTuple):
    """What a layer keeps for the backward pass, ``[E, B, ...]`` each.

    Attributes:
        rows: its input, with columns of zeros.
        weight: in the format of the products, with the same columns.
        normal: input, mean and reciprocal deviation of the layer norm; empty without one.
        activated: the output of the activation, or its input where the derivative needs that.
    """

    rows: Tensor
    weight: Tensor
    normal: tuple[Tensor, ...]
    activated: Tensor | None


def are_whole(tensors: Sequence[Tensor]) -> bool:
    """Whether all tensors are contiguous float32 on a GPU."""
    return all(each.is_cuda and each.dtype == torch.float32 and each.is_contiguous() for each in tensors)


def padded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` ``[..., n]`` in a format, with zeros in the columns up to the next multiple of ``WIDTH``."""
    missing = -x.shape[-1] % WIDTH
    if not missing:
        return x.to(dtype)
    found = x.new_empty((*x.shape[:-1], x.shape[-1] + missing), dtype=dtype)
    found[..., x.shape[-1] :].zero_()
    found[..., : x.shape[-1]].copy_(x)
    return found


class GpuRun:
    """The native function of a run of layers (:class:`Native`) on a GPU.

    Args:
        layers: what follows each of its linear layers.
        in_torch: the same rows by torch's own layers.
        stacked: whether the run is of ``E`` networks.
        bf16: whether products take their factors in bf16; sums are float32, and up to ``NARROW`` outputs too.
    """

    def __init__(self, layers: Sequence[GpuLayer], in_torch: Any, *, stacked: bool, bf16: bool) -> None:
        self._layers, self._in_torch, self._stacked = list(layers), in_torch, stacked
        self._dtype = torch.bfloat16 if bf16 else torch.float32
        self._exact = self._layers[-1] if bf16 and not any(self._layers[-1]) else None

    def in_torch(self, x: Tensor, *_: Tensor) -> Tensor:
        """See :class:`Native`; torch's layers hold the parameters themselves."""
        return self._in_torch(x)  # type: ignore[no-any-return]

    # --- forward

    def forward(self, x: Tensor, *parameters: Tensor, keep: bool = True) -> tuple[Tensor, list[Kept] | None]:
        """The output, float32, and what the backward pass needs if it is to be kept."""
        rows = self._rows(x)
        kept: list[Kept] = []
        rounded = self._rounded(parameters)
        for layer, (weight, bias, *norm) in zip(self._layers, rounded, strict=True):
            relu = not norm and isinstance(layer.activation, torch.nn.ReLU)
            if layer is self._exact and bias.shape[1] <= NARROW:
                z = _exact(rows, weight, parameters[-1].view(bias.shape))
            else:
                z = _affine(rows, weight, bias, relu)
            normal: tuple[Tensor, ...] = ()
            if norm:
                normalised, *moments = aten.native_layer_norm(z, [z.shape[-1]], None, None, layer.norm.eps)
                normal = (z, *moments)
                z = torch.addcmul(norm[1].unsqueeze(1), normalised, norm[0].unsqueeze(1))
            activated: Tensor | None = None
            if layer.activation is not None:
                into_input = isinstance(layer.activation, torch.nn.SiLU)
                out = z if relu else FORWARD[type(layer.activation)](z)
                activated, z = z if into_input else out, out
            kept.append(Kept(rows, weight, normal, activated))
            rows = z if layer is self._layers[-1] else padded(z, self._dtype)
        output = rows.float()
        if keep and output is kept[-1].activated:
            output = output.clone()  # or an operation in place would change what is kept
        # A view that a function of autograd gives cannot be changed in place; ``data`` is none.
        return (output if self._stacked else output[0].data), (kept if keep else None)

    def _rows(self, x: Tensor) -> Tensor:
        """``[E, B, n]`` in the format of the products, from one copy if all networks have the same rows."""
        if not self._stacked:
            return padded(x, self._dtype)[None]
        if x.stride(0) == 0:
            return padded(x[0], self._dtype).expand(len(x), -1, -1)
        return padded(x, self._dtype)

    def _rounded(self, parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """The parameters of each layer ``[E, ...]``, in the format of the products."""
        made = [each if self._stacked else each[None] for each in parameters]
        if self._dtype != torch.float32:
            small = [torch.empty_like(each, dtype=self._dtype) for each in made]
            torch._foreach_copy_(_pieces(small), _pieces(made))
            made = small
        given = iter(made)
        for layer in self._layers:
            weight, bias = next(given), next(given)
            yield [padded(weight, self._dtype), bias, *((next(given), next(given)) if layer.norm else ())]

    # --- backward

    def backward(
        self, tensors: Tensors, kept: list[Kept], gradients: Tensors, wanted: Sequence[bool]
    ) -> Gradients:
        """See :class:`Native`; also None for parameters whose gradient was added to their ``grad``."""
        x, *parameters = tensors
        gradient = gradients[0].to(self._dtype)
        gradient = gradient if self._stacked else gradient[None]
        found: list[Tensor | None] = []
        places = iter(range(len(parameters), 0, -1))
        for number in reversed(range(len(self._layers))):
            layer, of_layer = self._layers[number], kept[number]
            gradient = gradient[..., : of_layer.weight.shape[1]]  # without the next layer's columns of zeros
            if layer.activation is not None:
                assert of_layer.activated is not None
                gradient = BACKWARD[type(layer.activation)](gradient, of_layer.activated)
            if layer.norm is not None:
                of_bias, of_weight = next(places), next(places)
                trains = wanted[of_bias] or wanted[of_weight]
                gradient, of_norm = self._through_norm(parameters[of_weight - 1], of_layer, gradient, trains)
                found[:0] = of_norm
            wants = wanted[next(places)], wanted[next(places)]
            found[:0] = self._of_linear(of_layer, gradient, *wants)
            if number or wanted[0]:
                gradient = _before(gradient, of_layer.weight)
        return self._given(x, gradient if wanted[0] else None, parameters, found, wanted)

    def _through_norm(
        self, weight: Tensor, kept: Kept, gradient: Tensor, wanted: bool
    ) -> tuple[Tensor, list[Tensor | None]]:
        """The gradient of a layer norm's input, and those of its weight and bias."""
        z, mean, deviation = kept.normal
        size = [z.shape[-1]]
        found: list[Tensor | None] = [None, None]
        if wanted:
            normal = (z.float() - mean) * deviation
            found = [(gradient * normal).sum(1), gradient.sum(1, dtype=torch.float32)]
        scaled = gradient * (weight if self._stacked else weight[None]).unsqueeze(1)
        mask = [True, False, False]
        given = aten.native_layer_norm_backward(
            scaled.to(z.dtype), z, size, mean, deviation, None, None, mask
        )
        return given[0], found

    def _of_linear(self, kept: Kept, gradient: Tensor, bias: bool, weight: bool) -> list[Tensor | None]:
        """The gradients of a linear layer's weight, with columns for zeros, and of its bias."""
        found: list[Tensor | None] = [None, None]
        if weight:
            found[0] = _products(gradient.transpose(1, 2), kept.rows)
        if bias and gradient.shape[-1] == 1:
            found[1] = gradient.sum(1, dtype=torch.float32)
        elif bias:
            ones = gradient.new_ones(1, 1, gradient.shape[1]).expand(len(gradient), -1, -1)
            found[1] = _products(ones, gradient)[:, 0]
        return found

    def _given(
        self,
        x: Tensor,
        gradient: Tensor | None,
        parameters: Sequence[Tensor],
        found: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> Gradients:
        if gradient is not None:
            gradient = (gradient if self._stacked else gradient[0])[..., : x.shape[-1]].to(x.dtype)
        shaped = [
            None if each is None else each[..., : like.shape[-1]].reshape(like.shape)
            for like, each in zip(parameters, found, strict=True)
        ]
        if added := accumulators(parameters, wanted[1:]):
            for place, each in zip(added, shaped, strict=True):
                if place is not None and each is not None:
                    place.add_(each)
            return (gradient, *([None] * len(shaped)))
        return (gradient, *(None if each is None else each.float() for each in shaped))


def _affine(rows: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """``[E, B, out]`` of ``[E, B, in]``, ``[E, out, in]`` and ``[E, out]``, with a ReLU if that follows."""
    return _each(torch._addmm_activation if relu else torch.addmm, bias, rows, weight.transpose(1, 2))


def _exact(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same without a ReLU, in float32 whatever the format of the factors is."""
    with torch.autocast(rows.device.type, enabled=False):
        return _affine(rows.float(), weight.float(), bias, False)


def _each(product: Any, *factors: Tensor) -> Tensor:
    """``[E, m, n]``: a product of matrices for each of the stacked networks."""
    if len(factors[0]) == 1:
        return product(*(each[0] for each in factors))[None]  # type: ignore[no-any-return]
    left, right = factors[-2:]
    out = left.new_empty(len(left), left.shape[1], right.shape[2])
    for number, place in enumerate(out):
        product(*(each[number] for each in factors), out=place)
    return out


def _products(left: Tensor, right: Tensor) -> Tensor:
    """``[E, m, n]``, the products of ``[E, m, k]`` and ``[E, k, n]``."""
    return _each(torch.mm, left, right) if right.shape[1] > LONG else torch.bmm(left, right)


def _before(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient ``[E, B, in]`` of a linear layer's input."""
    if gradient.shape[-1] > 1:
        return torch.bmm(gradient, weight)
    return _each(torch.mm, gradient, weight) if gradient.shape[1] > LONG else gradient * weight


def _pieces(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of all numbers of contiguous tensors, of at most ``PIECE`` each."""
    return [piece for each in tensors for piece in torch.split(each.view(-1), PIECE)]
