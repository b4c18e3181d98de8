"""Layers as native calls, with the parameters and results of the modules that they stand for."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from spreeze_zmq.nn.gpu_layers import NARROW, GpuLayer, GpuRun, are_whole
from spreeze_zmq.nn.layers import Conv
from spreeze_zmq.nn.native.library import library
from spreeze_zmq.nn.native_calls import (
    Gradients,
    NativeFunction,
    Tensors,
    accumulators,
    are_plain,
    call,
    empty,
    pointers,
)
from spreeze_zmq.nn.networks import StackedLayerNorm, StackedLinear

#: The codes of the activations in ``native.cpp``.
ACTIVATION_CODES = {torch.nn.ReLU: 1, torch.nn.ELU: 2, torch.nn.SiLU: 3, torch.nn.Tanh: 4}
LINEAR, NORM = (torch.nn.Linear, StackedLinear), (torch.nn.LayerNorm, StackedLayerNorm)


def in_torch(modules: Sequence[torch.nn.Module], x: Tensor) -> Tensor:
    """The output of the last of some layers, each computed by torch. Under autocast the last linear one is in
    float32 if it has at most ``NARROW`` outputs.
    """
    kind, exact = x.device.type, None
    if torch.is_autocast_enabled(kind):
        exact = next((module for module in reversed(modules) if isinstance(module, LINEAR)), None)
        exact = exact if exact is not None and _is_narrow(exact.weight) else None
    for module in modules:
        if module is exact:
            with torch.autocast(kind, enabled=False):
                x = module(x.float())
        else:
            x = module(x)
    return x


def _is_narrow(weight: Tensor) -> bool:
    return weight.shape[-2] <= NARROW and weight.dtype == torch.float32


class LayerRun:
    """Layers that are one native call: linear layers, each followed by at most one layer norm and then at
    most one activation.

    Args:
        modules: the layers, the first and the last a linear one.

    Attributes:
        layers: for each linear layer its outputs, the code of its activation, whether it has a norm, and the
            norm's epsilon.
        num: number of stacked networks ``E``; 0 for a network that is not stacked.
        inputs: columns of an input row.
        outputs: columns of an output row.
        in_bf16: whether products can run in bf16.
    """

    in_bf16 = True

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self.modules = list(modules)
        owners = [module for module in modules if isinstance(module, (*LINEAR, *NORM))]
        self._stores = [owner._parameters for owner in owners]
        self.layers: list[list[int | float]] = []
        for module in modules:
            if isinstance(module, LINEAR):
                self.layers.append([module.weight.shape[-2], 0, 0, 0.0])
            elif isinstance(module, NORM):
                self.layers[-1][2:] = [1, module.eps]
            else:
                self.layers[-1][1] = ACTIVATION_CODES[type(module)]
        weight: Any = modules[0].weight
        self.num = weight.shape[0] if weight.dim() == 3 else 0
        self.inputs, self.outputs = int(weight.shape[-1]), int(self.layers[-1][0])
        self._calls = [_RunCall(self, bf16) for bf16 in (False, True)]
        self._gpu_calls = [
            GpuRun(list(self._followers()), self.in_torch, stacked=bool(self.num), bf16=bf16)
            for bf16 in (False, True)
        ]
        self._shapes = [parameter.shape for parameter in self.parameters()]

    def _followers(self) -> Iterator[GpuLayer]:
        """What follows each of its linear layers."""
        found: list[list[Any]] = []
        for module in self.modules:
            if isinstance(module, LINEAR):
                found.append([None, None])
            else:
                found[-1][0 if isinstance(module, NORM) else 1] = module
        return (GpuLayer(*each) for each in found)

    def parameters(self) -> list[Tensor]:
        """Weight and bias of each linear layer and norm, in the order of the layers."""
        found: list[Any] = []
        for store in self._stores:
            found += (store["weight"], store["bias"])
        return found

    def __call__(self, x: Tensor, bf16: bool) -> Tensor:
        """float32 rows ``[B, in]``, stacked ``[E, B, in]``, to float32 ``[..., out]``. torch computes them
        where a parameter has got another shape, dtype or memory layout since the run was made.

        Args:
            x: at least one row.
            bf16: whether products take their factors in bf16; sums are float32.
        """
        parameters = self.parameters()
        calls, plain = (self._calls, are_plain) if x.is_cpu else (self._gpu_calls, are_whole)
        if [parameter.shape for parameter in parameters] != self._shapes or not plain(parameters):
            return self.in_torch(x)
        native = calls[bf16]
        trained = x.requires_grad or any(parameter.requires_grad for parameter in parameters)
        if trained and torch.is_grad_enabled():
            out: Tensor = NativeFunction.apply(native, x, *parameters)  # type: ignore[no-untyped-call]
            return out
        return native.forward(x, *parameters, keep=False)[0]

    def in_torch(self, x: Tensor) -> Tensor:
        """The same by torch's own layers."""
        return in_torch(self.modules, x)


class _RunCall:
    """The native function of a run with its products in float32 or in bf16."""

    def __init__(self, run: LayerRun, bf16: bool) -> None:
        self._run = run
        plan = [max(1, run.num), len(run.layers), int(bf16), run.inputs]
        for outputs, activation, norm, eps in run.layers:
            plan += [int(outputs), int(activation), int(norm), *struct.unpack("q", struct.pack("d", eps))]
        self._plan = torch.tensor(plan, dtype=torch.int64)  # [4 + 4 * layers], as native.cpp reads it

    def in_torch(self, x: Tensor, *_: Tensor) -> Tensor:
        """See :class:`Native`; torch's layers hold the parameters themselves."""
        return self._run.in_torch(x)

    def forward(self, x: Tensor, *parameters: Tensor, keep: bool = True) -> tuple[Tensor, Tensor | None]:
        """The output, and the activations for the backward pass as bytes if they are to be kept."""
        shared, rows = self._shared(x), x.shape[-2]
        from_rows = (x[0] if shared and self._run.num else x).contiguous()
        output = empty(*x.shape[:-1], self._run.outputs)
        kept = None
        if keep:
            size = library().code.spreeze_kept(self._plan.data_ptr(), rows, shared)
            kept = torch.empty(size, dtype=torch.uint8, device="cpu")
        call("forward", self._plan, rows, shared, from_rows, pointers(parameters), output, kept)
        return output, kept

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        """See :class:`Native`; also None for parameters whose gradient was added to their ``grad``."""
        x, *parameters = tensors
        x_gradient = empty(*x.shape) if wanted[0] else None
        added = accumulators(parameters, wanted[1:])
        each = zip(parameters, wanted[1:], strict=True)
        results = added or [empty(*parameter.shape) if want else None for parameter, want in each]
        call(
            *("backward", self._plan, x.shape[-2], self._shared(x), pointers(parameters), kept),
            *(gradients[0].float().contiguous(), x_gradient, pointers(results), bool(added)),
        )
        return (x_gradient, *([None] * len(results) if added else results))

    def _shared(self, x: Tensor) -> bool:
        """Whether all stacked networks have the same rows, as expanded ones are."""
        return self._run.num in (0, 1) or x.stride(0) == 0


class NativeConv:
    """A :class:`Conv` that is one native call. Its products run in float32 only; torch does those in bf16.

    Args:
        module: the layer.

    Attributes: as :class:`LayerRun` has them; ``layers`` identifies the shape that was measured.
    """

    num, in_bf16 = 0, False

    def __init__(self, module: Conv) -> None:
        self.module = module
        self.inputs, self.outputs = module.input_size, module.output_size
        plan = [*module.shape, module.output_shape[0], module.weight.shape[2], module.stride]
        self.layers: list[list[int | float]] = [[float(number) for number in plan]]
        self._plan = torch.tensor(plan, dtype=torch.int64)
        self._shapes = [parameter.shape for parameter in self.parameters()]

    def parameters(self) -> list[Tensor]:
        """Weight and bias."""
        return [self.module.weight, self.module.bias]

    def __call__(self, x: Tensor, bf16: bool) -> Tensor:
        """float32 rows ``[B, inputs]`` to float32 ``[B, outputs]``; by torch as a :class:`LayerRun` says."""
        if bf16:
            return self.in_torch(x).float()
        tensors = x.contiguous(), *self.parameters()
        if [tensor.shape for tensor in tensors[1:]] != self._shapes or not are_plain(tensors):
            return self.in_torch(x)
        out: Tensor = NativeFunction.apply(self, *tensors)  # type: ignore[no-untyped-call]
        return out

    def in_torch(self, x: Tensor, *_: Tensor) -> Tensor:
        """The same by torch."""
        return self.module(x)  # type: ignore[no-any-return]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, None]:
        """See :class:`Native`; of ``x`` ``[B, inputs]``, the weight and the bias."""
        output = empty(len(tensors[0]), self.outputs)
        call("convolve", self._plan, len(output), *tensors, output)
        return output, None

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        """See :class:`Native`; both parameters always get their gradient."""
        x, weight, bias = tensors
        results = torch.empty_like(x) if wanted[0] else None, torch.empty_like(weight), torch.empty_like(bias)
        call("convolve_backward", self._plan, len(x), x, weight, gradients[0].contiguous(), *results)
        return results
