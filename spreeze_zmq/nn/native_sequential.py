"""A ``Sequential`` that does what it did before, with the same parameters: natively where rows are float32
on a CPU and a measurement has shown that this is faster, in torch otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch

from spreeze_zmq.nn.layers import Conv
from spreeze_zmq.nn.native import LINEAR, NORM, NUMBERS, Run, watched
from spreeze_zmq.nn.native_conv import NativeConv
from spreeze_zmq.nn.networks import StackedLinear

#: What a ``Sequential`` can do natively.
Step: TypeAlias = Run | NativeConv
STEPS = (Run, NativeConv)


class NativeSequential(torch.nn.Sequential):
    """A ``Sequential`` whose runs of layers are native calls.

    Attributes:
        formats: of the products for which they are; none at first.
    """

    formats: frozenset[torch.dtype] = frozenset()
    _found: tuple[tuple[torch.nn.Module, ...], list[Step | torch.nn.Module]] | None = None

    def steps(self) -> list[Step | torch.nn.Module]:
        """Its runs and convolutions, and its other layers as they are."""
        modules = tuple(self._modules.values())
        if self._found is None or self._found[0] != modules:
            self._found = modules, list(split([module for module in modules if module is not None]))
        return self._found[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What its layers make of ``x`` in turn."""
        if not self.formats or not x.is_cpu or watched():
            return self._in_torch(x)
        autocast = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else torch.float32
        if dtype not in self.formats:
            return self._in_torch(x)
        for step in self.steps():
            if isinstance(step, STEPS):
                x = step(x, dtype == torch.bfloat16) if _fits(step, x) else step.in_torch(x)
            else:
                x = step(x)
        return x

    def _in_torch(self, x: torch.Tensor) -> torch.Tensor:
        for module in self:
            x = module(x)
        return x


def _fits(run: Step, x: torch.Tensor) -> bool:
    """Whether rows are what the native call takes."""
    shape = x.shape
    stacked = not run.num or (len(shape) == 3 and shape[0] == run.num)
    return (
        x.dtype == torch.float32
        and len(shape) == 2 + bool(run.num)
        and stacked
        and (shape[-1] == run.inputs and shape[-2] > 0)
    )


def split(modules: Sequence[torch.nn.Module]) -> Iterator[Step | torch.nn.Module]:
    """The longest runs among layers in a row, convolutions, and the others."""
    start = 0
    while start < len(modules):
        module, end = modules[start], _end_of_run(modules, start)
        if end > start:
            yield Run(modules[start:end])
        else:
            yield NativeConv(module) if type(module) is Conv and _is_plain(module) else module
        start = max(end, start + 1)


def _end_of_run(modules: Sequence[torch.nn.Module], start: int) -> int:
    """Behind the last linear layer that belongs to a run from ``start``; ``start`` itself where none does."""
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
    """Whether a linear layer or a norm is of this very kind and takes outputs of ``shape``, ``[size]`` or
    stacked ``[E, size]``; of any shape for None.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if type(module) is not kind or weight is None or bias is None or not _is_plain(module):
        return False
    if kind in NORM:
        return bool(weight.shape == shape)
    return shape is None or (*weight.shape[:-2], weight.shape[-1]) == tuple(shape)


def _is_plain(module: torch.nn.Module) -> bool:
    """Whether nobody has hooked into it, and its parameters are float32 in one piece each."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return not any(hooks) and all(
        parameter.dtype == torch.float32 and parameter.is_contiguous() for parameter in module.parameters()
    )


def _is_activation(module: torch.nn.Module) -> bool:
    return type(module) in NUMBERS and getattr(module, "alpha", 1.0) == 1.0 and _is_plain(module)
