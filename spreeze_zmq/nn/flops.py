"""Floating point operations of matrix products and convolutions: how many are done, and how many could be."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spreeze_zmq.native.library import library
from spreeze_zmq.nn.native import Run

aten = torch.ops.aten
#: Rows and columns of the product that shows how fast a core multiplies, and a GPU.
ROWS, WIDTH, GPU_SIZE = 1024, 256, 4096
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
    """Products of hidden layers that one core of a CPU, or a GPU, was just seen to do in a second."""
    device = torch.device(device)
    if device.type != "cpu":
        left, right = (torch.randn(GPU_SIZE, GPU_SIZE, device=device).to(dtype) for _ in range(2))

        def multiply() -> None:
            torch.mm(left, right)
            torch.cuda.synchronize(device)

        return _rate([multiply], 2.0 * GPU_SIZE**3, time.perf_counter)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            return _rate(_ways_on_a_core(dtype), 2.0 * ROWS * WIDTH**2, time.thread_time)
    finally:
        torch.set_num_threads(threads)


def _ways_on_a_core(dtype: torch.dtype) -> list[Callable[[], Any]]:
    layer, source = torch.nn.Linear(WIDTH, WIDTH), torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=source)
    rows, weight, bf16 = x.to(dtype), layer.weight.to(dtype), dtype == torch.bfloat16
    ways: list[Callable[[], Any]] = [lambda: torch.mm(rows, weight.T)]
    code = library().code
    if code is not None and (not bf16 or code.spreeze_has_bf16()):
        run = Run([layer])
        ways.append(lambda: run(x, bf16))
    return ways


def _rate(ways: list[Callable[[], Any]], flops: float, clock: Callable[[], float]) -> float:
    """FLOP/s of the fastest of some calls that do ``flops`` each."""
    least = math.inf
    for _ in range(1 + ROUNDS):
        for way in ways:
            began_s = clock()
            way()
            least = min(least, clock() - began_s)
    return flops / least
