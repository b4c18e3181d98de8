"""Networks in plain values, for readers that evaluate them without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch

from spreeze_zmq.nn.layers import Append, Conv, Dueling

#: Activations by their names in options and policy messages.
ACTIVATIONS: dict[str, type[torch.nn.Module]] = {
    "relu": torch.nn.ReLU,
    "elu": torch.nn.ELU,
    "silu": torch.nn.SiLU,
    "tanh": torch.nn.Tanh,
}
_NAMES = {kind: name for name, kind in ACTIVATIONS.items()}


def describe(network: torch.nn.Module) -> list[dict[str, Any]] | None:
    """The layers of a ``Sequential`` for a policy message; None unless every reader can evaluate all of them,
    and they are all that it computes: a hook of calls, a ``forward`` or a parameter of its own may add to
    them, those of a subclass as well.

    Their parameters travel in the order of ``network.parameters()``.
    """
    if not isinstance(network, torch.nn.Sequential):
        return None
    modules = list(_flattened(network))
    found = [_layer(module) for module in modules]
    layers = [layer for layer in found if layer is not None]
    parameters = [id(parameter) for module in modules for parameter in module.parameters()]
    whole = parameters == [id(parameter) for parameter in network.parameters()]  # without any layer twice
    return layers if whole and len(layers) == len(found) else None


def _flattened(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The layers of a ``Sequential`` that is these alone, and of those in it; any other module itself."""
    if is_its_layers(module):
        for layer in module:
            yield from _flattened(layer)
    else:
        yield module


def is_its_layers(module: torch.nn.Module) -> TypeGuard[torch.nn.Sequential]:
    """Whether a module computes its layers, one after the other, and nothing else."""
    kind = type(module)
    inherits = kind.forward is torch.nn.Sequential.forward and kind.__call__ is torch.nn.Sequential.__call__
    return isinstance(module, torch.nn.Sequential) and inherits and not _has_own_output(module)


def _has_own_output(module: torch.nn.Module) -> bool:
    """Whether a module may give something else than its class does: by hooks of calls, or a ``forward``."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def has_own_code(module: torch.nn.Module) -> bool:
    """Whether a module has hooks, of calls or of gradients, or a ``forward`` of its own."""
    return bool(module._backward_hooks or module._backward_pre_hooks) or _has_own_output(module)


#: The parameters of the layers that are described and have some, in their order.
_PARAMETERS: dict[type[torch.nn.Module], list[str]] = {
    torch.nn.Linear: ["weight", "bias"],
    torch.nn.LayerNorm: ["weight", "bias"],
    Conv: ["weight", "bias"],
    Append: ["value"],
}


def has_its_parameters(layer: torch.nn.Module) -> bool:
    """Whether a layer has the parameters of its class, in their order: ``torch.nn.utils.prune`` renames."""
    return [name for name, _ in layer.named_parameters()] == _PARAMETERS.get(type(layer), [])


def _layer(layer: torch.nn.Module) -> dict[str, Any] | None:
    """One layer, by its exact class: a subclass may compute something else. None for an unknown layer, and
    for one whose parameters are others, as after ``torch.nn.utils.prune``.
    """
    kind = type(layer)
    if not has_its_parameters(layer) or _has_own_output(layer):
        return None
    if isinstance(layer, torch.nn.Linear) and kind is torch.nn.Linear:
        return {"kind": "linear", "in": layer.in_features, "out": layer.out_features}
    if isinstance(layer, torch.nn.LayerNorm) and kind is torch.nn.LayerNorm:
        plain = len(layer.normalized_shape) == 1
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
