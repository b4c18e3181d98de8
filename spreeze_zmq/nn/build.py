"""Whole networks, made of layers in a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from spreeze_zmq.nn.layers import Conv

#: By the names that options and policy messages use.
ACTIVATIONS: dict[str, type[torch.nn.Module]] = {
    "relu": torch.nn.ReLU,
    "elu": torch.nn.ELU,
    "silu": torch.nn.SiLU,
    "tanh": torch.nn.Tanh,
}


def mlp(
    sizes: Sequence[int], activation: str = "relu", layer_norm: bool = False, output_scale: float = 1.0
) -> torch.nn.Sequential:
    """A multilayer perceptron, initialised from torch's default generator.

    Weights and biases are uniform in +-1/sqrt(inputs); those of the last layer are then multiplied by
    ``output_scale``: with a small one a policy's first mean action is almost zero.

    Args:
        sizes: of the input, of each hidden layer and of the output.
        activation: a name of ``ACTIVATIONS``, behind each hidden layer.
        layer_norm: whether each hidden layer is normalised before its activation.
        output_scale: factor of the last layer.
    """
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers.append(linear(inputs, outputs))
        if layer_norm:
            layers.append(torch.nn.LayerNorm(outputs))
        layers.append(ACTIVATIONS[activation]())
    return torch.nn.Sequential(*layers, linear(sizes[-2], sizes[-1], output_scale))


def nature_cnn(shape: tuple[int, int, int], outputs: int) -> torch.nn.Sequential:
    """The network of Mnih et al. 2015 (doi 10.1038/nature14236, methods) on flattened images.

    Args:
        shape: ``(channels, height, width)``, height and width at least 36.
        outputs: numbers in an output row.
    """
    layers: list[torch.nn.Module] = []
    for out, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        convolution = Conv(shape, out, kernel, stride)
        layers += [convolution, torch.nn.ReLU()]
        shape = convolution.output_shape
    size = convolution.output_size
    return torch.nn.Sequential(*layers, linear(size, 512), torch.nn.ReLU(), linear(512, outputs))


def linear(inputs: int, outputs: int, scale: float = 1.0) -> torch.nn.Linear:
    """An affine map whose weights and biases are uniform in +-scale/sqrt(inputs)."""
    layer = torch.nn.Linear(inputs, outputs)
    bound = scale / inputs**0.5
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -bound, bound)
    return layer
