"""Runs of linear layers, layer norms and activations as one native call forward and one backward."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from spreeze_zmq.native import recording
from spreeze_zmq.native.library import library
from spreeze_zmq.nn.networks import StackedLayerNorm, StackedLinear

#: The numbers that ``native.cpp`` knows the activations by.
NUMBERS = {torch.nn.ReLU: 1, torch.nn.ELU: 2, torch.nn.SiLU: 3, torch.nn.Tanh: 4}
LINEAR, NORM = (torch.nn.Linear, StackedLinear), (torch.nn.LayerNorm, StackedLayerNorm)
Tensors = tuple[torch.Tensor | None, ...]


class Run:
    """Layers that are one native call: linear ones, between two of them a layer norm or none, then an
    activation or none.

    Args:
        modules: from a linear layer to a linear layer.

    Attributes:
        layers: of each linear layer: outputs, number of the activation behind it, whether a norm lies between
            them, its epsilon.
        num: networks ``E``; 0 for one that is not stacked.
        in_bf16: whether its products can be in bf16.
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
                self.layers[-1][1] = NUMBERS[type(module)]
        weight: Any = modules[0].weight
        self.num = weight.shape[0] if weight.dim() == 3 else 0
        self.inputs, self.outputs = int(weight.shape[-1]), int(self.layers[-1][0])
        self._plans = [self._plan(bf16) for bf16 in (False, True)]
        self._shapes = [parameter.shape for parameter in self.parameters()]

    def _plan(self, bf16: bool) -> torch.Tensor:
        """As ``native.cpp`` reads it, ``[4 + 4 * layers]`` int64."""
        numbers = [max(1, self.num), len(self.layers), int(bf16), self.inputs]
        for outputs, activation, norm, eps in self.layers:
            numbers += [int(outputs), int(activation), int(norm), *struct.unpack("q", struct.pack("d", eps))]
        return torch.tensor(numbers, dtype=torch.int64)

    def parameters(self) -> list[torch.Tensor]:
        """Weight and bias of each linear layer and norm, in the order of the layers."""
        found: list[Any] = []
        for store in self._stores:
            found += (store["weight"], store["bias"])
        return found

    def __call__(self, x: torch.Tensor, bf16: bool) -> torch.Tensor:
        """Rows ``[B, in]``, stacked ``[E, B, in]``, to ``[..., out]``, both float32; by torch where
        somebody has changed the parameters' form since.

        Args:
            x: at least one row.
            bf16: whether products take their factors in bf16; sums are float32.
        """
        parameters = self.parameters()
        if [parameter.shape for parameter in parameters] != self._shapes or not are_plain(parameters):
            return self.in_torch(x)
        trained = x.requires_grad or any(parameter.requires_grad for parameter in parameters)
        if trained and torch.is_grad_enabled():
            out: torch.Tensor = _Native.apply(self, bf16, x, *parameters)  # type: ignore[no-untyped-call]
            return out
        return self.forward(x, parameters, bf16, keep=False)[0]

    def forward(
        self, x: torch.Tensor, parameters: Sequence[torch.Tensor], bf16: bool, keep: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The output, and what ``backward`` needs."""
        shared, rows, plan, code = self._shared(x), x.shape[-2], self._plans[bf16].data_ptr(), library().code
        from_rows = (x[0] if shared and self.num else x).contiguous()
        output = torch.empty((*x.shape[:-1], self.outputs))
        kept = torch.empty(code.spreeze_kept(plan, rows, shared), dtype=torch.uint8) if keep else None
        recording.call(
            *(code.spreeze_forward, plan, rows, shared, from_rows.data_ptr(), _pointers(parameters)),
            *(output.data_ptr(), _pointer(kept)),
        )
        return output, kept

    def backward(
        self,
        x: torch.Tensor,
        parameters: Sequence[torch.Tensor],
        kept: torch.Tensor,
        gradient: torch.Tensor,
        bf16: bool,
        wanted: Sequence[bool],
    ) -> Tensors:
        """The gradients of ``x`` and of each parameter; None for those that are not ``wanted``, and for
        parameters whose gradient has been added to their ``grad`` (:func:`into_grad`).
        """
        of_x = torch.empty(x.shape) if wanted[0] else None
        added = _accumulators(parameters, wanted[1:])
        each = zip(parameters, wanted[1:], strict=True)
        made = added or [torch.empty(parameter.shape) if want else None for parameter, want in each]
        of_output = gradient.float().contiguous()
        recording.call(
            library().code.spreeze_backward,
            self._plans[bf16].data_ptr(),
            x.shape[-2],
            self._shared(x),
            _pointers(parameters),
            kept.data_ptr(),
            of_output.data_ptr(),
            _pointer(of_x),
            _pointers(made),
            bool(added),
        )
        return (of_x, *([None] * len(made) if added else made))

    def _shared(self, x: torch.Tensor) -> bool:
        """Whether all networks see the same rows, as expanded ones are."""
        return not self.num or self.num == 1 or x.stride(0) == 0

    def in_torch(self, x: torch.Tensor) -> torch.Tensor:
        """The same by torch's own layers."""
        for module in self.modules:
            x = module(x)
        return x


_thread = threading.local()


@contextlib.contextmanager
def into_grad() -> Iterator[None]:
    """Inside, a backward pass of this thread adds the gradients of native layers to the parameters' ``grad``
    itself, where there is one, which saves a copy of each. For ``Tensor.backward`` alone:
    ``torch.autograd.grad`` would not find them.
    """
    _thread.into_grad = True
    try:
        yield
    finally:
        _thread.into_grad = False


def _accumulators(parameters: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
    """The ``grad`` of each parameter that is wanted; empty where not all of them can be added to."""
    if not getattr(_thread, "into_grad", False):
        return []
    found: list[torch.Tensor | None] = []
    for parameter, want in zip(parameters, wanted, strict=True):
        hooked = parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        grad = parameter.grad if want and parameter.is_leaf and not hooked else None
        if want and (grad is None or grad.dtype != torch.float32 or not grad.is_contiguous()):
            return []
        found.append(grad)
    return found


class _Native(torch.autograd.Function):
    """One run under autograd."""

    @staticmethod
    def forward(ctx: Any, run: Run, bf16: bool, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        output, ctx.kept = run.forward(x, parameters, bf16, keep=True)
        ctx.run, ctx.bf16 = run, bf16
        ctx.save_for_backward(x, *parameters)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, *parameters = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # a graph of the gradients is wanted as well
            return None, None, *_differentiable(ctx.run, (x, *parameters), gradient, wanted)
        return None, None, *ctx.run.backward(x, parameters, ctx.kept, gradient, ctx.bf16, wanted)


def _differentiable(
    run: Run, tensors: Sequence[torch.Tensor], gradient: torch.Tensor, wanted: Sequence[bool]
) -> Tensors:
    """The gradients by torch's own layers, which can be differentiated again."""
    chosen = [tensor for tensor, want in zip(tensors, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(run.in_torch(tensors[0]), chosen, gradient, create_graph=True))
    return tuple(next(found) if want else None for want in wanted)


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _pointers(tensors: Sequence[torch.Tensor | None]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*[None if each is None else each.data_ptr() for each in tensors])


def code_for(*tensors: torch.Tensor) -> Any:
    """The native library where it may compute on these tensors, which it takes as float32 in one piece; else
    None.
    """
    code = library().code
    return None if code is None or watched() or not are_plain(tensors) else code


def are_plain(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether each lies in memory as a native call takes it: float32 in one piece."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.dtype != torch.float32 or not tensor.is_contiguous():
            return False
    return True


def check_shape(name: str, tensor: torch.Tensor, *shape: int) -> None:
    """A native call reads as much as it was told of.

    Raises:
        ValueError: ``tensor``, called ``name``, has another shape.
    """
    if tensor.shape != shape:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, expected {list(shape)}")


def shape_of_rows(name: str, tensor: torch.Tensor) -> tuple[int, int]:
    """The number of rows and of columns.

    Raises:
        ValueError: ``tensor``, called ``name``, has another number of axes.
    """
    if tensor.dim() != 2:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, expected rows and columns")
    return tensor.shape[0], tensor.shape[1]


def watched() -> bool:
    """Whether torch looks at each operation: to trace, count, batch or compile it. A tape may be there, which
    notes native calls as well.
    """
    looks: Any = torch._C
    tapes = recording.under_way() is not None
    return bool(
        looks._len_torch_dispatch_stack() > tapes
        or looks._functorch.peek_interpreter_stack() is not None
        or looks._get_tracing_state() is not None
        or torch.compiler.is_compiling()
    )
