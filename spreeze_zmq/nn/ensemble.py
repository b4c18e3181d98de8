"""Several networks of one shape evaluated together, such as twin critics."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from spreeze_zmq.nn.build import ACTIVATIONS


class StackedLinear(torch.nn.Module):
    """``E`` affine maps, with weight ``[E, out, in]`` and bias ``[E, out]``."""

    def __init__(self, layers: list[torch.nn.Linear]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = torch.nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[E, B, in]`` to ``[E, B, out]``."""
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight.transpose(1, 2))


class StackedLayerNorm(torch.nn.Module):
    """``E`` layer normalisations, with weight and bias ``[E, size]``."""

    def __init__(self, layers: list[torch.nn.LayerNorm]) -> None:
        super().__init__()
        self.eps = layers[0].eps
        self.weight = torch.nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = torch.nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[E, B, size]`` to the same."""
        normal = functional.layer_norm(x, x.shape[2:], eps=self.eps)
        return torch.addcmul(self.bias.unsqueeze(1), normal, self.weight.unsqueeze(1))


class Ensemble(torch.nn.Module):
    """``E`` networks on the same rows, layer by layer in batched products; make it with :func:`ensemble`."""

    def __init__(self, num: int, layers: list[torch.nn.Module]) -> None:
        super().__init__()
        self.num = num
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, in]`` to ``[E, B, out]``."""
        out: torch.Tensor = self.layers(x.expand(self.num, *x.shape))
        return out


def ensemble(num: int, make: Callable[[], torch.nn.Sequential]) -> Ensemble:
    """``num`` networks, each a fresh one of ``make()``: linear layers, layer norms and activations.

    Raises:
        ValueError: ``make()`` holds another layer.
    """
    networks = [make() for _ in range(num)]
    return Ensemble(num, [_stacked(list(layers)) for layers in zip(*networks, strict=True)])


def _stacked(layers: list[torch.nn.Module]) -> torch.nn.Module:
    """The same layer of all networks in one."""
    linear = [layer for layer in layers if isinstance(layer, torch.nn.Linear)]
    norm = [layer for layer in layers if isinstance(layer, torch.nn.LayerNorm)]
    if linear:
        return StackedLinear(linear)
    if norm:
        return StackedLayerNorm(norm)
    if isinstance(layers[0], tuple(ACTIVATIONS.values())):
        return layers[0]
    raise ValueError(f"an ensemble cannot hold {type(layers[0]).__name__}")
