"""Floating point operations of matrix products and convolutions: how many are done, and how many could be."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spreeze_zmq.native.library import library

aten = torch.ops.aten
#: Rows and columns of the product that shows how fast a core multiplies.
ROWS, WIDTH = 1024, 256
#: Of multiply-adds alone: about as long as that product.
TURNS = 1000
ROUNDS = 5


def _of_product(left: torch.Tensor, right: torch.Tensor) -> int:
    return 2 * left.numel() * right.shape[-1]


def _of_convolution(images: torch.Tensor, weight: torch.Tensor) -> int:
    """For each number of ``images``, the output of a convolution with ``weight``."""
    return 2 * images.numel() * math.prod(weight.shape[1:])


def _of_convolution_backward(arguments: tuple[Any, ...]) -> int:
    gradient, _, weight = arguments[:3]
    wanted = arguments[-1]  # of the input, the weight, the bias
    return _of_convolution(gradient, weight) * (bool(wanted[0]) + bool(wanted[1]))


#: From the arguments and the output of an operation to its floating point operations.
_COUNTS: Mapping[Any, Callable[[tuple[Any, ...], Any], int]] = {
    aten.mm: lambda given, _: _of_product(*given[:2]),
    aten.bmm: lambda given, _: _of_product(*given[:2]),
    aten.addmm: lambda given, _: _of_product(*given[1:3]),
    aten.baddbmm: lambda given, _: _of_product(*given[1:3]),
    aten.convolution: lambda given, made: _of_convolution(made, given[1]),
    aten.convolution_backward: lambda given, _: _of_convolution_backward(given),
}


class CountedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, counts what torch multiplies, backward passes too; native layers are left to torch.

    Attributes:
        flops: two for each multiplication and the addition that goes with it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled inside; true would import torch's compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do it, and count it."""
        made = func(*args, **(kwargs or {}))
        count = _COUNTS.get(func.overloadpacket)
        if count is not None:
            self.flops += count(args, made)
        return made


def most_flops_per_s(device: str | torch.device, dtype: torch.dtype) -> float:
    """What one core of a CPU, or a GPU, was just seen to multiply and add in a second."""
    device = torch.device(device)
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return max(_rate(call, flops, clock) for call, flops in multiply_limits(device, dtype).values())
    finally:
        torch.set_num_threads(threads)


def multiply_limits(
    device: str | torch.device, dtype: torch.dtype, gpu_size: int = 4096
) -> dict[str, tuple[Callable[[], Any], float]]:
    """By name, calls that do little but multiply, and the floating point operations of each.

    On a GPU a product of matrices of ``gpu_size`` rows and columns. On a CPU torch's product of a hidden
    layer, and where the native layers are, their multiply-adds alone: what the instruction set gives.
    """
    device = torch.device(device)
    rows, width = (ROWS, WIDTH) if device.type == "cpu" else (gpu_size, gpu_size)
    source = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, width, generator=source).to(device, dtype) for size in (rows, width))
    product = torch.empty(rows, width, device=device, dtype=dtype)

    def multiply() -> None:
        torch.mm(left, right, out=product)
        if device.type != "cpu":
            torch.cuda.synchronize(device)

    found = {"torch": (multiply, 2.0 * rows * width**2)}
    code, bf16 = library().code, dtype == torch.bfloat16
    if device.type == "cpu" and code is not None and (flops := code.spreeze_multiply_adds(bf16, TURNS)):
        found["instructions"] = (partial(code.spreeze_multiply_adds, bf16, TURNS), flops)
    return found


def _rate(call: Callable[[], Any], flops: float, clock: Callable[[], float]) -> float:
    """FLOP/s of the fastest of some calls that do ``flops`` each."""
    least = math.inf
    for _ in range(1 + ROUNDS):
        began_s = clock()
        call()
        least = min(least, clock() - began_s)
    return flops / least
