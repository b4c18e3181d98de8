"""The floating point operations of a learner's updates, counted in matrix products and convolutions, and the
most that its device can do.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.at_hand import random_batch_of, random_round, round_size
from spreeze_zmq.nn.native.library import library
from spreeze_zmq.policy.actor import SHIPPED
from spreeze_zmq.replay import Batch, Minibatches

log = logging.getLogger("spreeze")

#: Batch size of the update that is counted, unless its loss takes no other than the run's; operations grow in
#: proportion to it.
COUNTED_BATCH = 32
#: Largest batch that is counted instead; of a larger one the CPU would take long, and much memory.
MOST_COUNTED = 2048
#: Size of the product that measures how fast a core multiplies.
ROWS, WIDTH = 1024, 256
#: Rounds of bare multiply-adds that take about as long as that product.
TURNS = 1000
#: Measurements, of which the fastest counts.
ROUNDS = 5

aten = torch.ops.aten


class Arithmetic(NamedTuple):
    """The arithmetic of a learner's updates, and its device's limit.

    Attributes:
        flops_per_transition: result of :func:`flops_per_transition`; 0 if it could not be counted.
        limit_flops_per_s: largest measured rate of matrix products, of one CPU core or of the GPU.
    """

    flops_per_transition: float
    limit_flops_per_s: float


def arithmetic_of(half: AutogradHalf, spec: EnvironmentSpec, device: str) -> Arithmetic:
    """Count an update and measure the device, in some hundredths of a second; the half stays as it was."""
    kind, options = type(half.algorithm), half.options
    dtype = nn.dtypes_of(options.precision, torch.device(device), kind.auto_bf16)[-1]
    # A half that is made seeds the generators of all GPUs, too.
    with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
        limit = most_flops_per_s(device, dtype)
        try:
            if device == "cpu" and kind.__module__.startswith(SHIPPED):
                return Arithmetic(flops_per_transition(half, spec), limit)
            return Arithmetic(_flops_of_another(half, spec), limit)
        except Exception as error:  # a user's algorithm may fail on random numbers
            log.info("the arithmetic of an update is not counted: %s: %s", type(error).__name__, error)
            return Arithmetic(0.0, limit)


def _flops_of_another(half: AutogradHalf, spec: EnvironmentSpec) -> float:
    """:func:`flops_per_transition` of a half like this one, on the CPU: an algorithm of a user's own may keep
    what it is trained on in plain attributes, and these are random numbers.
    """
    kind, options = type(half.algorithm), dataclasses.replace(half.options, precision="fp32")

    def counted(size: int) -> float:
        return flops_per_transition(algorithms.make(half.part, kind, options, spec, "cpu", 1), spec, size)

    try:
        return counted(COUNTED_BATCH)
    except Exception:
        size = rehearsed_size(options)
        if size == COUNTED_BATCH or size > MOST_COUNTED:
            raise
        return counted(size)  # its loss may rely on options.batch_size


def rehearsed_size(options: Any) -> int:
    """Transitions of an update as the run has them; on a batch of ``"auto"`` no loss can rely."""
    return COUNTED_BATCH if options.batch_size == "auto" else int(options.batch_size)


def flops_per_transition(half: AutogradHalf, spec: EnvironmentSpec, size: int = COUNTED_BATCH) -> float:
    """Floating point operations of an update's matrix products and convolutions per transition of its batch;
    on-policy, with a share of the preparation of a round. The half, which is on the CPU, stays as it was, but
    for attributes of an algorithm that are no networks.

    Args:
        half: whose loss it is.
        spec: of the environment.
        size: transitions of the batch.
    """
    kind, options, state = type(half.algorithm), half.options, half.state_dict()
    preparation, update, per_epoch = CountedProducts(), CountedProducts(), 0.0
    try:
        if kind.on_policy():
            memory_size = kind.memory_size(options)
            made = random_round(spec, round_size(size), "cpu", options.frame_stack, memory_size)
            with preparation:
                fields = half.prepare(made)
            batch: Any = next(Minibatches(fields, 1, size).drawn(torch.Generator()))
            per_epoch, size = (
                preparation.flops / made.reward.numel() / options.epochs,
                batch["log_prob"].numel(),
            )
        else:
            live = half.algorithm.options.drawn(half.part)  # no schedules but their numbers
            batch = random_batch_of(kind.kept_fields(half.part, options), spec, live, size, "cpu")
            size = batch.reward.numel() if isinstance(batch, Batch) else size
        with update:
            half.update(batch)
        return per_epoch + update.flops / size
    finally:
        half.load_state_dict(state)


def _of_product(left: Tensor, right: Tensor) -> int:
    return 2 * left.numel() * right.shape[-1]


def _of_convolution(images: Tensor, weight: Tensor) -> int:
    """``images`` is the output of a convolution with ``weight``."""
    return 2 * images.numel() * math.prod(weight.shape[1:])


def _of_convolution_backward(arguments: tuple[Any, ...]) -> int:
    gradient, _, weight = arguments[:3]
    wanted = arguments[-1]  # the gradients of the input, the weight, the bias
    return _of_convolution(gradient, weight) * (bool(wanted[0]) + bool(wanted[1]))


#: The floating point operations of a torch operation, from its arguments and its output.
_COUNTS: Mapping[Any, Callable[[tuple[Any, ...], Any], int]] = {
    aten.mm: lambda given, _: _of_product(*given[:2]),
    aten.bmm: lambda given, _: _of_product(*given[:2]),
    aten.addmm: lambda given, _: _of_product(*given[1:3]),
    aten.baddbmm: lambda given, _: _of_product(*given[1:3]),
    aten.convolution: lambda given, output: _of_convolution(output, given[1]),
    aten.convolution_backward: lambda given, _: _of_convolution_backward(given),
}


class CountedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, counts the products that torch computes, in backward passes too; native layers run in torch.

    Attributes:
        flops: two for each multiply-add.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled inside; true would import torch's compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count it."""
        output = func(*args, **(kwargs or {}))
        count = _COUNTS.get(func.overloadpacket)
        if count is not None:
            self.flops += count(args, output)
        return output


def most_flops_per_s(device: str | torch.device, dtype: torch.dtype) -> float:
    """Measure the highest FLOP/s of one CPU core, or of a GPU."""
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
    """Calls that do little but multiply, by name, and the floating point operations of each.

    On a GPU a product of square matrices of ``gpu_size``. On a CPU torch's product of a hidden layer and, if
    there is a native library, its bare multiply-adds, the limit of the instruction set.
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
    """FLOP/s of the fastest of several calls of ``flops`` each."""
    least = math.inf
    for _ in range(1 + ROUNDS):
        began_s = clock()
        call()
        least = min(least, clock() - began_s)
    return flops / least
