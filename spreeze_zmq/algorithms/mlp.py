"""Multilayer perceptrons over one flat parameter buffer, with the backward pass written out.

Weights of all layers are views of one float32 buffer and so are their gradients: export, import, optimiser
step and target update are one call each. Autograd would allocate every intermediate anew and dispatch twice
the calls, which at small batches costs more than the products themselves; here each layer keeps its buffers
from update to update.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from spreeze_zmq.algorithms.activations import Activation, takes_bias
from spreeze_zmq.algorithms.layers import Layer, LayerNorm, Linear
from spreeze_zmq.algorithms.scratch import Scratch, ViewOf

LayerDescription = dict[str, Any]


def describe(
    inputs: int, hidden_sizes: Sequence[int], outputs: int, activation: str, layer_norm: bool = False
) -> list[LayerDescription]:
    """The layers in plain values, as the policy message carries them."""
    layers: list[LayerDescription] = []
    for size in hidden_sizes:
        layers.append({"kind": "linear", "in": inputs, "out": size})
        if layer_norm:
            layers.append({"kind": "layer_norm", "size": size, "eps": 1e-5})
        layers.append({"kind": activation})
        inputs = size
    layers.append({"kind": "linear", "in": inputs, "out": outputs})
    return layers


def shapes(layers: Sequence[LayerDescription]) -> list[tuple[int, ...]]:
    """The shape of every parameter of one network, in packing order: of each layer weight, then bias."""
    packed: list[tuple[int, ...]] = []
    for layer in layers:
        if layer["kind"] == "linear":
            packed += [(layer["out"], layer["in"]), (layer["out"],)]
        elif layer["kind"] == "layer_norm":
            packed += [(layer["size"],), (layer["size"],)]
    return packed


def num_parameters(layers: Sequence[LayerDescription], num_networks: int = 1) -> int:
    """Length of the flat buffer."""
    return num_networks * sum(math.prod(shape) for shape in shapes(layers))


def initialize(
    layers: Sequence[LayerDescription],
    num_networks: int,
    generator: torch.Generator,
    output_scale: float = 1.0,
) -> torch.Tensor:
    """Fresh flat parameters on the CPU, float32, drawn from ``generator``.

    Weights and biases are uniform in +-1/sqrt(inputs), layer norms start as the identity, and the last layer
    is multiplied by ``output_scale``: a small one makes a policy's first mean action almost zero.
    """
    flat = torch.empty(num_parameters(layers, num_networks))
    parameters = _views(flat, layers, num_networks)
    for layer in layers:
        if layer["kind"] == "linear":
            bound = 1.0 / math.sqrt(layer["in"])
            for tensor in (next(parameters), next(parameters)):
                tensor.copy_(torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator))
                if layer is layers[-1]:
                    tensor.mul_(output_scale)
        elif layer["kind"] == "layer_norm":
            next(parameters).fill_(1.0)
            next(parameters).zero_()
    return flat


def _views(flat: torch.Tensor, layers: Sequence[LayerDescription], num_networks: int) -> Any:
    """``[E, *shape]`` views of ``flat``, layer by layer: the same layer of all networks lies together."""
    offset = 0
    for shape in shapes(layers):
        size = num_networks * math.prod(shape)
        yield flat[offset : offset + size].view(num_networks, *shape)
        offset += size


class Spares:
    """Two buffers that layers take in turn: each reads one and writes the other."""

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._turn = itertools.cycle((Scratch(dtype, device), Scratch(dtype, device)))

    def next(self) -> Scratch:
        """The one that was not given out last."""
        return next(self._turn)


class Mlp:
    """``E`` networks of one shape, evaluated together.

    Args:
        layers: the description of one network.
        parameters: flat float32 ``[P]``, viewed and not copied; call ``refresh`` after changing it.
        gradient: flat float32 ``[P]`` that ``backward`` fills; None for a network that is only evaluated.
        num_networks: ``E``.
        dtype: format of weights and activations in the products.
        spares: what holds only until another of their users is called: gradients, and the outputs of a
            network that is ``forward_only``.
        forward_only: no call of ``backward`` or ``input_gradient`` follows.
        columns: those of the input that ``input_gradient`` is wanted of.

    The tensors that its methods return are its own buffers: they hold until the next call.
    """

    def __init__(
        self,
        layers: Sequence[LayerDescription],
        parameters: torch.Tensor,
        gradient: torch.Tensor | None = None,
        num_networks: int = 1,
        dtype: torch.dtype = torch.float32,
        spares: Spares | None = None,
        forward_only: bool = False,
        columns: slice = slice(None),
    ):
        self.parameters = parameters
        self.gradient = gradient
        self.num_networks = num_networks
        self.dtype = dtype
        self._weights = parameters if dtype == torch.float32 else parameters.to(dtype)
        self._gradients = gradient if dtype == torch.float32 or gradient is None else gradient.to(dtype)
        self._input = Scratch(dtype, parameters.device)
        self._shared = ViewOf(lambda x: x.expand(num_networks, *x.shape))
        self._layers = self._build(layers, spares or Spares(dtype, parameters.device), forward_only, columns)

    def _build(
        self, layers: Sequence[LayerDescription], spares: Spares, forward_only: bool, columns: slice
    ) -> list[Layer]:
        weights = _views(self._weights, layers, self.num_networks)
        gradients = None
        if self._gradients is not None:
            gradients = _views(self._gradients, layers, self.num_networks)
        built: list[Layer] = []
        due: torch.Tensor | None = None  # a bias that the next layer adds
        for layer, following in zip(layers, [*layers[1:], {"kind": ""}], strict=True):
            if layer["kind"] not in ("linear", "layer_norm"):
                built.append(Activation(layer["kind"], self._weights, due))
                due = None
                continue
            weight, bias = next(weights), next(weights)
            pair = None if gradients is None else (next(gradients), next(gradients))
            if layer["kind"] == "linear":
                own = Scratch(self.dtype, self.parameters.device)
                buffers = (spares.next(), own) if forward_only else (own, spares.next())
                due = bias if takes_bias(following["kind"], self._weights) else None
                wanted = slice(None) if built else columns
                built.append(Linear(weight, bias, pair, *buffers, wanted, due is not None))
            else:
                built.append(LayerNorm(weight, bias, layer["eps"], pair))
        return built

    def refresh(self) -> None:
        """Carry a change of ``parameters`` into the copy that the products use."""
        if self._weights is not self.parameters:
            self._weights.copy_(self.parameters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows ``[B, in]`` shared by all networks to ``[E, B, out]`` in the products' format."""
        if x.dtype != self.dtype:
            x = self._input(*x.shape).copy_(x)
        x = self._shared(x)
        for layer in self._layers:
            x = layer.forward(x)
        return x

    def backward(self, gradient: torch.Tensor, add: bool = False) -> None:
        """Fill ``self.gradient`` from that of the last ``forward``'s output ``[E, B, out]``, or add to it."""
        assert self.gradient is not None, "this network was made without gradients"
        assert self._gradients is not None
        rounded = self._gradients is not self.gradient  # sums over many rows are kept in float32
        for layer in reversed(self._layers[1:]):
            layer.parameter_gradients(gradient, add and not rounded)
            gradient = layer.backward(gradient)
        self._layers[0].parameter_gradients(gradient, add and not rounded)
        if rounded and add:
            self.gradient.add_(self._gradients)
        elif rounded:
            self.gradient.copy_(self._gradients)

    def input_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the last ``forward``'s input, ``[E, B, len(columns)]``; leaves the parameters'
        alone.
        """
        for layer in reversed(self._layers):
            gradient = layer.backward(gradient)
        return gradient
