"""A network in plain values, as a policy message carries it to readers without torch."""

from __future__ import annotations

from typing import Any

import torch

from spreeze_zmq.nn.build import ACTIVATIONS
from spreeze_zmq.nn.layers import Append, Conv, Dueling

_NAMES = {kind: name for name, kind in ACTIVATIONS.items()}


def describe(network: torch.nn.Module) -> list[dict[str, Any]] | None:
    """The layers of a Sequential; None where a reader could not evaluate one of them.

    The parameters that the description speaks of come in the order of ``network.parameters()``.
    """
    if not isinstance(network, torch.nn.Sequential):
        return None
    found = [_layer(layer) for layer in network]
    layers = [layer for layer in found if layer is not None]
    return layers if len(layers) == len(found) else None


def _layer(layer: torch.nn.Module) -> dict[str, Any] | None:
    """By its exact type: a subclass may do something else."""
    kind = type(layer)
    if isinstance(layer, torch.nn.Linear) and kind is torch.nn.Linear:
        has_bias = layer.bias is not None
        return {"kind": "linear", "in": layer.in_features, "out": layer.out_features} if has_bias else None
    if isinstance(layer, torch.nn.LayerNorm) and kind is torch.nn.LayerNorm:
        plain = len(layer.normalized_shape) == 1 and len(list(layer.parameters())) == 2
        return {"kind": "layer_norm", "size": layer.normalized_shape[0], "eps": layer.eps} if plain else None
    if isinstance(layer, Conv) and kind is Conv:
        about = {"out": layer.output_shape[0], "kernel": layer.weight.shape[2], "stride": layer.stride}
        return {"kind": "conv2d", "shape": list(layer.shape), **about}
    if isinstance(layer, Append) and kind is Append:
        return {"kind": "append", "size": len(layer.value)}
    if isinstance(layer, Dueling) and kind is Dueling:
        return {"kind": "dueling", "actions": layer.actions, "atoms": layer.atoms}
    if isinstance(layer, torch.nn.ELU) and layer.alpha != 1.0:
        return None
    return {"kind": _NAMES[kind]} if kind in _NAMES else None
