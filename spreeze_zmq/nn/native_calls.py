"""Calls of the native library on tensors, and their gradients under autograd."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from spreeze_zmq.nn.native import recording
from spreeze_zmq.nn.native.library import library


def call(name: str, *arguments: Any) -> None:
    """Call the native function ``spreeze_NAME``, now and at each replay of a recording.

    Args:
        name: of the function, without its prefix.
        arguments: as ``native.cpp`` declares them; a tensor is passed as its address.

    Raises:
        MemoryError: the function could not allocate its memory.
    """
    function = getattr(library().code, f"spreeze_{name}")
    values = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]

    def step() -> None:
        if function(*values):
            raise MemoryError("native layers")

    recording.each_time(step)


def empty(*shape: int) -> Tensor:
    """A tensor for a native function to write: float32 on the CPU, whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def pointers(tensors: Sequence[Tensor | None]) -> Any:
    """An array of the tensors' addresses; a null pointer for None."""
    return (ctypes.c_void_p * len(tensors))(*[None if each is None else each.data_ptr() for each in tensors])


def code_for(*tensors: Tensor) -> Any:
    """The native library if it can compute on these tensors (:func:`are_plain`), else None."""
    code = library().code
    return None if code is None or watched() or not are_plain(tensors) else code


def are_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether all tensors are contiguous float32 on the CPU, as native functions expect them."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.dtype != torch.float32 or not tensor.is_contiguous():
            return False
    return True


def watched() -> bool:
    """Whether torch intercepts each operation to trace, count, batch or compile it, which would miss native
    calls. A tape does not count: it records native calls as well.
    """
    internals: Any = torch._C
    tapes = recording.under_way() is not None
    return bool(
        internals._len_torch_dispatch_stack() > tapes
        or internals._functorch.peek_interpreter_stack() is not None
        or internals._get_tracing_state() is not None
        or torch.compiler.is_compiling()
    )


def check_shape(name: str, tensor: Tensor, *shape: int) -> None:
    """Check a tensor that a native function reads or writes without bounds.

    Raises:
        ValueError: ``tensor``, called ``name``, has another shape.
    """
    if tensor.shape != shape:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, expected {list(shape)}")


def shape_of_rows(name: str, tensor: Tensor) -> tuple[int, int]:
    """The number of rows and of columns.

    Raises:
        ValueError: ``tensor``, called ``name``, does not have two axes.
    """
    if tensor.dim() != 2:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, expected rows and columns")
    return tensor.shape[0], tensor.shape[1]


Tensors: TypeAlias = Sequence[Tensor]
#: The gradient of each input of a function; None where it is not wanted.
Gradients: TypeAlias = Sequence[Tensor | None]


class Native(Protocol):
    """A function of tensors that the native library computes forward and backward."""

    def forward(self, *tensors: Any, **options: Any) -> tuple[Any, Any]:
        """The outputs, one tensor or a tuple, and what ``backward`` needs beside the inputs."""

    def backward(self, tensors: Tensors, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Gradients:
        """The gradients of the inputs ``tensors`` from the ``gradients`` of the outputs."""

    def in_torch(self, *tensors: Any, **options: Any) -> Any:
        """The same outputs by torch's operations, differentiable any number of times."""


class NativeFunction(torch.autograd.Function):
    """A :class:`Native` function under autograd; torch computes gradients that are differentiated again."""

    @staticmethod
    def forward(ctx: Any, native: Native, *tensors: Tensor) -> Any:
        """The outputs of ``native``."""
        outputs, ctx.kept = native.forward(*tensors)
        ctx.native = native
        ctx.save_for_backward(*tensors)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """None for ``native`` itself, then the gradient of each tensor."""
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[1:]
        if not torch.is_grad_enabled():
            return None, *ctx.native.backward(tensors, ctx.kept, gradients, wanted)
        inputs = [tensor for tensor, want in zip(tensors, wanted, strict=True) if want]
        outputs = ctx.native.in_torch(*tensors)
        found = iter(torch.autograd.grad(outputs, inputs, gradients, create_graph=True))
        return None, *(next(found) if want else None for want in wanted)


def are_fixed(numbers: Iterable[object]) -> bool:
    """Whether numbers are known now; one that moves is a 0-d tensor, of which a native function, which takes
    numbers, would get the address.
    """
    return not any(isinstance(number, Tensor) for number in numbers)


def differentiable(
    native: Native, x: Tensor, *constants: Tensor, numbers: Iterable[float | Tensor] = ()
) -> Any:
    """The outputs of a native function with a native gradient for ``x`` alone. torch computes them where the
    library cannot, where a gradient for one of the ``constants`` is wanted as well, and where one of the
    ``numbers`` moves that ``native`` holds.
    """
    plain = are_fixed(numbers) and code_for(x, *constants) is not None
    if not plain or any(constant.requires_grad for constant in constants):
        return native.in_torch(x, *constants)
    if x.requires_grad and torch.is_grad_enabled():
        return NativeFunction.apply(native, x, *constants)  # type: ignore[no-untyped-call]
    return native.forward(x, *constants)[0]


_thread = threading.local()


@contextlib.contextmanager
def into_grad() -> Iterator[None]:
    """Inside, native layers add their gradients directly to the ``grad`` of their parameters, which saves a
    copy of each. Only for ``Tensor.backward`` in this thread: ``torch.autograd.grad`` would miss them.
    """
    _thread.into_grad = True
    try:
        yield
    finally:
        _thread.into_grad = False


def accumulators(parameters: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    """The ``grad`` of each parameter whose gradient is wanted, inside :func:`into_grad`; empty outside, and
    where one of them is missing, is not contiguous float32 or has a hook that must see its gradient.
    """
    if not getattr(_thread, "into_grad", False):
        return []
    found: list[Tensor | None] = []
    for parameter, want in zip(parameters, wanted, strict=True):
        hooked = parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        grad = parameter.grad if want and parameter.is_leaf and not hooked else None
        if want and (grad is None or grad.dtype != torch.float32 or not grad.is_contiguous()):
            return []
        found.append(grad)
    return found
