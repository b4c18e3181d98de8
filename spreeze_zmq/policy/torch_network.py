"""The layers of a policy in torch, for networks with convolutions, which NumPy has none of.

Imported only when such a policy comes: a sampler of others does without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from spreeze_zmq.policy.layers import Layer

Floats = NDArray[np.float32]
Step = Callable[[torch.Tensor], torch.Tensor]

ACTIVATIONS: dict[str, Step] = {
    "relu": functional.relu,
    "elu": functional.elu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


class TorchNetwork:
    """Layers of any kind, evaluated without gradients on copies of their weights.

    The number of threads is left to the process, which the launcher starts with its share of the machine.

    Attributes:
        num_outputs: numbers in a row of the result.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.num_outputs = layers[-1].num_outputs
        self._steps = [_step(layer) for layer in layers]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs]`` to ``[N, num_outputs]``, traceable for any ``N``."""
        for step in self._steps:
            x = step(x)
        return x

    def __call__(self, rows: Floats) -> Floats:
        """``[N, inputs]`` to ``[N, num_outputs]``; the rows stay as they are."""
        if not rows.flags.writeable:
            rows = rows.copy()  # torch warns of memory that it must not write to
        with torch.inference_mode():
            result: Floats = self.forward(torch.from_numpy(rows)).numpy()
        return result


def _step(layer: Layer) -> Step:
    if layer.kind in ACTIVATIONS:
        return ACTIVATIONS[layer.kind]
    weights = [torch.from_numpy(np.array(weight)) for weight in layer.weights]
    return STEPS[layer.kind](layer, weights)


def _linear(layer: Layer, weights: list[torch.Tensor]) -> Step:
    return lambda x: functional.linear(x, *weights)


def _layer_norm(layer: Layer, weights: list[torch.Tensor]) -> Step:
    weight, bias = weights
    return lambda x: functional.layer_norm(x, (layer.num_inputs,), weight, bias, layer.eps)


def _conv2d(layer: Layer, weights: list[torch.Tensor]) -> Step:
    weight, bias = weights

    def step(x: torch.Tensor) -> torch.Tensor:
        images = x.reshape(-1, *layer.image)
        return functional.conv2d(images, weight, bias, layer.stride).flatten(1)

    return step


def _append(layer: Layer, weights: list[torch.Tensor]) -> Step:
    return lambda x: torch.cat([x, weights[0].expand(x.shape[0], -1)], 1)


def _dueling(layer: Layer, weights: list[torch.Tensor]) -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(-1, 1 + layer.actions, layer.atoms)
        value, advantage = parts[:, :1], parts[:, 1:]
        return (value + advantage - advantage.mean(1, keepdim=True)).flatten(1)

    return step


STEPS: dict[str, Callable[[Layer, list[torch.Tensor]], Step]] = {
    "linear": _linear,
    "layer_norm": _layer_norm,
    "conv2d": _conv2d,
    "append": _append,
    "dueling": _dueling,
}
