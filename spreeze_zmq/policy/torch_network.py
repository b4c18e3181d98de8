"""A policy's network in torch, for convolutions, which NumPy does not have.

Imported only for a policy with a convolution: other samplers do without torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from spreeze_zmq import nn
from spreeze_zmq.policy.actor import Floats
from spreeze_zmq.policy.description import Layer


class TorchNetwork:
    """Evaluates layers of any kind without gradients on copies of their weights.

    The process sets the number of threads: the launcher starts it with its share of the machine.

    Attributes:
        num_outputs: numbers in an output row.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.num_outputs = layers[-1].num_outputs
        self._network = torch.nn.Sequential(*map(_module, layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs]`` to ``[N, num_outputs]``, traceable for any ``N``."""
        output: torch.Tensor = self._network(x)
        return output

    def __call__(self, rows: Floats) -> Floats:
        """``[N, inputs]`` to ``[N, num_outputs]``; the rows stay as they are."""
        if not rows.flags.writeable:
            rows = rows.copy()  # torch warns about read-only memory
        with torch.inference_mode():
            result: Floats = self.forward(torch.from_numpy(rows)).numpy()
        return result


def _module(layer: Layer) -> torch.nn.Module:
    """A module with the layer's weights, made without initialisation: policies arrive every few updates."""
    with torch.device("meta"):
        module = _empty(layer)
    for (name, _), weight in zip(list(module.named_parameters()), layer.weights, strict=True):
        own = torch.from_numpy(np.array(weight, order="C"))
        setattr(module, name, torch.nn.Parameter(own, requires_grad=False))
    return module


def _empty(layer: Layer) -> torch.nn.Module:
    match layer.kind:
        case "linear":
            return torch.nn.Linear(layer.num_inputs, layer.num_outputs)
        case "layer_norm":
            return torch.nn.LayerNorm(layer.num_inputs, layer.eps)
        case "conv2d":
            channels, height, width = layer.image
            out, _, kernel, _ = layer.weights[0].shape
            return nn.Conv((channels, height, width), out, kernel, layer.stride)
        case "append":
            return nn.Append(layer.num_outputs - layer.num_inputs, 0.0)
        case "dueling":
            return nn.Dueling(layer.actions, layer.atoms)
        case kind:
            return nn.ACTIVATIONS[kind]()
