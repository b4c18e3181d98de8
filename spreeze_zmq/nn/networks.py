"""Whole networks: perceptrons, convolutional networks and ensembles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spreeze_zmq.nn.described import ACTIVATIONS, has_its_parameters, has_own_code, is_its_layers
from spreeze_zmq.nn.layers import Conv, linear


def mlp(
    sizes: Sequence[int], activation: str = "relu", layer_norm: bool = False, output_scale: float = 1.0
) -> torch.nn.Sequential:
    """A multilayer perceptron, initialised from torch's default generator.

    Weights and biases are uniform in +-1/sqrt(inputs); those of the last layer are then multiplied by
    ``output_scale``. With a small one a policy's first mean action is almost zero.

    Args:
        sizes: widths of the input, of each hidden layer and of the output.
        activation: a key of ``ACTIVATIONS``, after each hidden layer.
        layer_norm: whether each hidden layer is normalised before its activation.
        output_scale: factor of the last layer's weights and biases.
    """
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers.append(linear(inputs, outputs))
        if layer_norm:
            layers.append(torch.nn.LayerNorm(outputs))
        layers.append(ACTIVATIONS[activation]())
    return torch.nn.Sequential(*layers, linear(sizes[-2], sizes[-1], output_scale))


@dataclass(frozen=True)
class Convolutions:
    """The layers of a network for images.

    Attributes:
        filters: ``(filters, kernel, stride)`` of each convolution.
        hidden: width of the linear layer after them.
    """

    filters: tuple[tuple[int, int, int], ...]
    hidden: int


#: Networks for images by their names in options: that of Mnih et al. 2015 (doi 10.1038/nature14236, methods),
#: that of Mnih et al. 2013 (arXiv 1312.5602, section 4.1), and one whose strides leave 5 x 5 places of 36 x
#: 36 pixels. The first one's leave a single place of 42 x 42, where nothing is told from what is beside it.
CONVOLUTIONS = {
    "nature_cnn": Convolutions(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    "small_cnn": Convolutions(((16, 8, 4), (32, 4, 2)), 256),
    "fine_cnn": Convolutions(((32, 5, 3), (32, 3, 2)), 256),
}


def convolutions(
    shape: tuple[int, int, int], layers: Convolutions, layer_norm: bool = False
) -> tuple[list[torch.nn.Module], int]:
    """Convolutions on flattened images, each with a ReLU, and the size of their output rows.

    Args:
        shape: ``(channels, height, width)``.
        layers: whose ``filters`` are meant.
        layer_norm: whether each is normalised, over all of its numbers, before its activation.
    """
    network: list[torch.nn.Module] = []
    for out, kernel, stride in layers.filters:
        convolution = Conv(shape, out, kernel, stride)
        norm = [torch.nn.LayerNorm(convolution.output_size)] if layer_norm else []
        network.extend([convolution, *norm, torch.nn.ReLU()])
        shape = convolution.output_shape
    return network, convolution.output_size


def cnn(
    shape: tuple[int, int, int],
    outputs: int,
    layers: Convolutions = CONVOLUTIONS["nature_cnn"],
    layer_norm: bool = False,
    output_scale: float = 1.0,
) -> torch.nn.Sequential:
    """Convolutions on flattened images and a hidden linear layer, each with a ReLU, then a linear layer.

    Args:
        shape: ``(channels, height, width)``.
        outputs: columns of an output row.
        layers: the convolutions and the width of the hidden layer.
        layer_norm: whether each hidden layer is normalised, over all of its numbers, before its activation.
        output_scale: factor of the last layer's weights and biases.
    """
    network, size = convolutions(shape, layers, layer_norm)
    network.append(linear(size, layers.hidden))
    network.extend([torch.nn.LayerNorm(layers.hidden)] if layer_norm else [])
    return torch.nn.Sequential(*network, torch.nn.ReLU(), linear(layers.hidden, outputs, output_scale))


def projection(inputs: int, outputs: int) -> list[torch.nn.Module]:
    """The layers that make few numbers of many features: linear, normalised, tanh (DrQ-v2, 2107.09645)."""
    return [linear(inputs, outputs), torch.nn.LayerNorm(outputs), torch.nn.Tanh()]


class Projected(torch.nn.Module):
    """A network on a :func:`projection` of features, and on what stands beside these as it is.

    Args:
        num_features: the first columns of a row, which are projected.
        num_projected: numbers that become of them.
        network: takes rows of these and of the other columns.
    """

    def __init__(self, num_features: int, num_projected: int, network: torch.nn.Module) -> None:
        super().__init__()
        self.num_features = num_features
        self.projection = torch.nn.Sequential(*projection(num_features, num_projected))
        self.network = network

    def forward(self, rows: Tensor) -> Tensor:
        """``[B, num_features + n]`` to the output of the network."""
        features, beside = rows[:, : self.num_features], rows[:, self.num_features :]
        output: Tensor = self.network(torch.cat((self.projection(features), beside), 1))
        return output


class StackedLinear(torch.nn.Module):
    """``E`` affine maps, with weight ``[E, out, in]`` and bias ``[E, out]``."""

    def __init__(self, layers: list[torch.nn.Linear]) -> None:
        super().__init__()
        self.weight = _stack([layer.weight for layer in layers])
        self.bias = _stack([layer.bias for layer in layers])

    def forward(self, x: Tensor) -> Tensor:
        """``[E, B, in]`` to ``[E, B, out]``."""
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight.transpose(1, 2))


class StackedLayerNorm(torch.nn.Module):
    """``E`` layer normalisations, with weight and bias ``[E, size]``."""

    def __init__(self, layers: list[torch.nn.LayerNorm]) -> None:
        super().__init__()
        self.eps = layers[0].eps
        self.weight = _stack([layer.weight for layer in layers])
        self.bias = _stack([layer.bias for layer in layers])

    def forward(self, x: Tensor) -> Tensor:
        """``[E, B, size]`` to the same."""
        normal = functional.layer_norm(x, x.shape[2:], eps=self.eps)
        return torch.addcmul(self.bias.unsqueeze(1), normal, self.weight.unsqueeze(1))


class Ensemble(torch.nn.Module):
    """``E`` networks on the same rows as batched products; made by :func:`ensemble`."""

    def __init__(self, num: int, layers: list[torch.nn.Module]) -> None:
        super().__init__()
        self.num = num
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, in]`` to ``[E, B, out]``."""
        out: Tensor = self.layers(x.expand(self.num, *x.shape))
        return out


def ensemble(num: int, make: Callable[[], torch.nn.Sequential]) -> Ensemble:
    """``num`` networks, each from its own call of ``make``, with linear layers, layer norms and activations.

    Raises:
        ValueError: a network has another layer, or layers other than another one's, or computes more than
            these.
    """
    networks = [make() for _ in range(num)]
    for network in networks:
        if not is_its_layers(network) or has_own_code(network):
            kind = type(network).__name__
            raise ValueError(
                f"an ensemble is of Sequentials, without hooks or a forward of their own, not {kind}"
            )
    if len({len(network) for network in networks}) > 1:
        raise ValueError("an ensemble is of networks with equally many layers")
    return Ensemble(num, [_stacked(list(layers)) for layers in zip(*networks, strict=True)])


def _stack(parts: Sequence[Tensor]) -> torch.nn.Parameter:
    """``[E, ...]``, on the device of the parts. On the meta device, where samplers measure networks,
    ``torch.stack`` imports torch's compiler: four seconds of a core.
    """
    whole = parts[0].new_empty((len(parts), *parts[0].shape))
    for index, part in enumerate(parts):
        whole[index].copy_(part.detach())
    return torch.nn.Parameter(whole)


def _stacked(layers: list[torch.nn.Module]) -> torch.nn.Module:
    """One module for the same layer of all networks."""
    first, kind = layers[0], type(layers[0])
    for layer in layers:
        if type(layer) is not kind or repr(layer) != repr(first):  # which has its sizes, eps and alpha
            raise ValueError(f"an ensemble cannot hold {layer} beside {first}")
    if has_its_parameters(first) and not any(map(has_own_code, layers)):
        if kind in _STACKS:
            return _STACKS[kind](layers)
        if kind in ACTIVATIONS.values():
            return first
    raise ValueError(f"an ensemble cannot hold {first}")


_STACKS: dict[type[torch.nn.Module], Callable[[list[Any]], torch.nn.Module]] = {
    torch.nn.Linear: StackedLinear,
    torch.nn.LayerNorm: StackedLayerNorm,
}
