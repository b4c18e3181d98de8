"""A ``Sequential`` with the same parameters and results, whose layers are native calls in the number formats
that ``native_choice.py`` has found right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from spreeze_zmq.nn.described import has_own_code
from spreeze_zmq.nn.layers import Conv
from spreeze_zmq.nn.native_calls import watched
from spreeze_zmq.nn.native_layers import ACTIVATION_CODES, LINEAR, NORM, LayerRun, NativeConv, in_torch
from spreeze_zmq.nn.networks import StackedLinear

#: What a ``Sequential`` can do natively.
Step: TypeAlias = LayerRun | NativeConv
STEPS = (LayerRun, NativeConv)
#: Whether there are hooks of all modules.
has_global_hook: Callable[[], bool] = torch.nn.modules.module._has_any_global_hook


class NativeSequential(torch.nn.Sequential):
    """A ``Sequential`` whose runs of layers and convolutions are native calls.

    Attributes:
        formats: number formats of the products for which they are; none at first.
    """

    formats: frozenset[torch.dtype] = frozenset()
    _split: tuple[list[Any], list[Step | torch.nn.Module]] | None = None

    def steps(self) -> list[Step | torch.nn.Module]:
        """Its runs and convolutions, and its other layers as they are."""
        modules = [module for module in self._modules.values() if module is not None]
        states = [_state(module) for module in modules]
        if self._split is None or self._split[0] != states:
            self._split = states, list(split(modules))
        return self._split[1]

    def forward(self, x: Tensor) -> Tensor:
        """The output of the last layer; float32 under autocast, whichever way computed it."""
        return _unrounded(self._layers(x))

    def _layers(self, x: Tensor) -> Tensor:
        if not self.formats or watched() or has_global_hook():
            return in_torch([*self], x)
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
        if dtype not in self.formats:
            return in_torch([*self], x)
        for step in self.steps():
            if isinstance(step, STEPS):
                x = step(x, dtype == torch.bfloat16) if _fits(step, x) else step.in_torch(x)
            else:
                x = step(x)
        return x


def _unrounded(x: Tensor) -> Tensor:
    """What torch gives in the format of autocast, as float32: a loss must not depend on who computes it."""
    if not isinstance(x, Tensor) or x.dtype == torch.float32 or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.float() if x.dtype == torch.get_autocast_dtype(x.device.type) else x


def _fits(step: Step, x: Tensor) -> bool:
    """Whether the native call takes these rows: at least one, float32, of its size and stack."""
    shape = x.shape
    stack = (step.num,) if step.num else ()
    return (
        (x.dtype == torch.float32 or x.is_cuda)
        and len(shape) == 2 + len(stack)
        and shape[:-2] == stack
        and shape[-1] == step.inputs
        and shape[-2] > 0
    )


def split(modules: Sequence[torch.nn.Module]) -> Iterator[Step | torch.nn.Module]:
    """The layers of a ``Sequential`` in order: the longest runs, convolutions, and all others."""
    start = 0
    while start < len(modules):
        module, end = modules[start], _end_of_run(modules, start)
        if end > start:
            yield LayerRun(modules[start:end])
        else:
            yield NativeConv(module) if type(module) is Conv and _is_plain(module) else module
        start = max(end, start + 1)


def _end_of_run(modules: Sequence[torch.nn.Module], start: int) -> int:
    """The index behind the last linear layer of the run from ``start``; ``start`` where none begins there."""
    stacked = type(modules[start]) is StackedLinear
    end, at, shape = start, start, None
    while at < len(modules) and _joins(modules[at], LINEAR[stacked], shape):
        weight: Any = modules[at].weight
        shape = weight.shape[:-1]
        at = end = at + 1
        at += at < len(modules) and _joins(modules[at], NORM[stacked], shape)
        at += at < len(modules) and _is_activation(modules[at])
    return end


def _joins(module: torch.nn.Module, kind: type[torch.nn.Module], shape: torch.Size | None) -> bool:
    """Whether a linear layer or a norm is exactly of this class and takes outputs of ``shape``, ``[size]`` or
    stacked ``[E, size]``; None for any shape.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if type(module) is not kind or weight is None or bias is None or not _is_plain(module):
        return False
    if kind in NORM:
        return bool(weight.shape == shape)
    return shape is None or (*weight.shape[:-2], weight.shape[-1]) == tuple(shape)


def _is_plain(module: torch.nn.Module) -> bool:
    """Whether a module is computed by its class alone, and has only plain parameters."""
    return not has_own_code(module) and all(
        parameter.dtype == torch.float32 and parameter.is_contiguous() for parameter in module.parameters()
    )


def _state(module: torch.nn.Module) -> tuple[Any, ...]:
    """What decides how a layer is computed, and can be changed at any time."""
    about = vars(module)
    return module, type(module), has_own_code(module), about.get("eps"), about.get("alpha")


def _is_activation(module: torch.nn.Module) -> bool:
    return type(module) in ACTIVATION_CODES and getattr(module, "alpha", 1.0) == 1.0 and _is_plain(module)
