"""Networks in plain values, and the parameters of several of one shape in one flat float32 buffer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

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
    parameters = views(flat, layers, num_networks)
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


def views(
    flat: torch.Tensor, layers: Sequence[LayerDescription], num_networks: int
) -> Iterator[torch.Tensor]:
    """``[E, *shape]`` views of ``flat``, layer by layer: the same layer of all networks lies together."""
    offset = 0
    for shape in shapes(layers):
        size = num_networks * math.prod(shape)
        yield flat[offset : offset + size].view(num_networks, *shape)
        offset += size
