"""Runs layers natively wherever the native library loads, and chooses the number format of their products: of
those that the device has and the options allow, the one that is measured to be the fastest.

Measurements are cached for the user: all runs on one machine choose alike, and so compute the same bits.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import cpu_flags, cpu_model, file_of, recall, remember
from spreeze_zmq.base.once import alone
from spreeze_zmq.nn.native.library import NativeLibrary, library
from spreeze_zmq.nn.native_sequential import STEPS, NativeSequential, Step

#: Larger batches are measured with this many rows: the cost of a row hardly changes beyond.
MOST_ROWS = 1024
#: Longest wait for another learner's measurement, which is some seconds: well within the time to be ready.
MOST_S = 10.0
#: Results are checked on this many rows.
FEW_ROWS = 64
#: Measurements of each format, in turn; the fastest counts.
ROUNDS = 7
#: Relative distance from torch's float32 results beyond which native results are wrong, unless it is at most
#: twice that of torch's results in the same format.
TOLERANCE = 1e-4
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
#: What :func:`_agrees` has found right.
_agreeing: set[tuple[object, ...]] = set()
#: Flags of /proc/cpuinfo for bf16 products in hardware; without one torch emulates them many times slower.
BF16_FLAGS = ("amx_bf16", "avx512_bf16")
#: The compute capability from which on a GPU's tensor cores take TF32.
TF32_CAPABILITY = (8, 0)


def has_bf16(device: torch.device, flags: frozenset[str] | None = None) -> bool:
    """Whether ``device`` multiplies bf16 in hardware; ``flags`` are those of the CPU, by default read now."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool((cpu_flags() if flags is None else flags).intersection(BF16_FLAGS))


def allow_tf32(precision: str, device: torch.device) -> None:
    """Set whether this process rounds the factors of float32 products to TF32 for a GPU's tensor cores: those
    of matrices where TF32 is stated, those of convolutions, as torch itself does, unless float32 is.

    Raises:
        InputError: TF32 is wanted on a device without tensor cores that take it.
    """
    is_gpu = device.type == "cuda"
    if precision == "tf32" and not (is_gpu and torch.cuda.get_device_capability(device) >= TF32_CAPABILITY):
        others = "a GPU from Ampere on has" if is_gpu else "a GPU has"
        raise InputError(f'precision = "tf32": {device} has no TF32, {others}; use "fp32" or "auto"')
    if is_gpu:
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision != "fp32"


def dtypes_of(
    precision: str, device: torch.device, auto_bf16: bool, flags: frozenset[str] | None = None
) -> tuple[torch.dtype, ...]:
    """The formats that the products of an update may run in, of which the fastest is taken. Parameters and
    optimiser stay float32.

    Args:
        precision: the algorithm's option.
        device: where the update runs.
        auto_bf16: whether ``"auto"`` may take bf16.
        flags: of the CPU, by default read now.

    Raises:
        InputError: bf16 is wanted on a device that would only emulate it.
    """
    if precision == "bf16":
        if has_bf16(device, flags):
            return (torch.bfloat16,)
        lacks = f"has none of {' or '.join(BF16_FLAGS)}"
        if device.type == "cuda":
            lacks = "multiplies no bf16 in hardware, a GPU from Ampere on does"
        raise InputError(f'precision = "bf16": {device} {lacks}, it would emulate bf16; use "fp32" or "auto"')
    if precision == "auto" and auto_bf16 and has_bf16(device, flags):
        return (torch.bfloat16,) if device.type == "cuda" else (torch.float32, torch.bfloat16)
    return (torch.float32,)


class Choice(NamedTuple):
    """The result of :func:`choose`.

    Attributes:
        dtype: number format of the products.
        line: for the log.
        is_odd: whether native layers load and give other results than torch's, so that none is used.
    """

    dtype: torch.dtype
    line: str
    is_odd: bool = False


def choose(modules: Mapping[str, torch.nn.Module], rows: int, dtypes: Sequence[torch.dtype]) -> Choice:
    """Make each ``Sequential`` of linear layers in these modules native where the library loads.

    Args:
        modules: networks by name, on their device.
        rows: batch size.
        dtypes: allowed formats of the products, at least one; the fastest is taken.
    """
    parts = [(name, part) for name, module in modules.items() for part in native_parts(module)]
    on_cpu = all(parameter.device.type == "cpu" for _, part in parts for parameter in part.parameters())
    native = library()
    if parts and not on_cpu:
        for _, part in parts:
            part.formats = frozenset(dtypes)
        return Choice(dtypes[-1], f"layers: joined products in {NAMES[dtypes[-1]]}")
    if not parts:
        return Choice(dtypes[-1], "layers: torch")
    for _, part in parts:
        part.formats = frozenset(dtype for dtype in dtypes if _is_right(part, dtype, native))
    dtype = dtypes[0] if len(dtypes) == 1 else _fastest([part for _, part in parts], rows, dtypes, native)
    if native.code is None and len(dtypes) == 1:
        return Choice(dtype, f"layers: torch, about half as fast as native code: {native.problem}")
    if native.code is None:
        return Choice(dtype, f"layers: torch in {NAMES[dtype]}; no native ones: {native.problem}")
    names = sorted({name for name, part in parts if dtype in part.formats})
    found = f"({native.instructions})" + (f" ({native.problem})" if native.problem else "")
    if not names:
        line = f"layers: torch in {NAMES[dtype]}; native ones {found} compute something else"
        return Choice(dtype, line, is_odd=True)
    threads = torch.get_num_threads()
    idle = f"; each in one of {threads} threads" if threads > 1 else ""
    return Choice(dtype, f"layers: native {found} in {NAMES[dtype]}: {', '.join(names)}{idle}")


def leave_to_torch(module: torch.nn.Module) -> None:
    """Let torch compute every layer of a module from now on."""
    for part in native_parts(module):
        part.formats = frozenset()


def native_parts(module: torch.nn.Module) -> list[NativeSequential]:
    """Turn every ``Sequential`` of a module into a :class:`NativeSequential`; those with a native step."""
    found = []
    for part in module.modules():
        if type(part) is torch.nn.Sequential:
            part.__class__ = NativeSequential
        if isinstance(part, NativeSequential) and _steps(part):
            found.append(part)
    return found


def _steps(part: NativeSequential) -> list[Step]:
    return [step for step in part.steps() if isinstance(step, STEPS)]


def _gradients(step: Step, rows: int) -> Callable[[torch.dtype, bool], list[Tensor]]:
    """A function that computes a copy of a step, forward and backward on random rows, in a format and either
    natively or by torch.
    """
    step, source = copy.deepcopy(step), torch.Generator().manual_seed(0)
    parameters = [parameter.requires_grad_(True) for parameter in step.parameters()]
    x = torch.randn(rows, step.inputs, generator=source, dtype=torch.float32)
    x = x.expand(step.num, *x.shape) if step.num else x
    gradient = torch.randn(*x.shape[:-1], step.outputs, generator=source, dtype=torch.float32)

    def compute(dtype: torch.dtype, natively: bool) -> list[Tensor]:
        bf16 = dtype == torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16 and not (natively and step.in_bf16)):
            output = step(x, bf16=bf16) if natively else step.in_torch(x)
            # as with a gradient of the output, for which torch would first import 500 modules
            summed = (output * gradient.to(output.dtype)).sum()
            return [output.detach(), *torch.autograd.grad(summed, parameters)]

    return compute


def _is_right(part: NativeSequential, dtype: torch.dtype, native: NativeLibrary) -> bool:
    """Whether there is native code of this format whose results are torch's."""
    if native.code is None or (dtype == torch.bfloat16 and not native.code.spreeze_has_bf16()):
        return False
    return all(_agrees(step, dtype, native) for step in _steps(part))


def _agrees(step: Step, dtype: torch.dtype, native: NativeLibrary) -> bool:
    """Whether the results of a step's native code are torch's. Code that was right is not asked again in this
    process, as a learner makes its networks several times before it trains.
    """
    shape = step.num, step.inputs, *map(tuple, step.layers)
    about = native, dtype, torch.get_default_dtype(), type(step), shape
    if about not in _agreeing:
        compute = _gradients(step, FEW_ROWS)
        exact = compute(torch.float32, False)
        allowed = max(TOLERANCE, 2.0 * distance(compute(dtype, False), exact))
        if not distance(compute(dtype, True), exact) <= allowed:
            return False
        _agreeing.add(about)
    return True


def _fastest(
    parts: Sequence[NativeSequential], rows: int, dtypes: Sequence[torch.dtype], native: NativeLibrary
) -> torch.dtype:
    """The format in which these parts take the least time, as measured before or now."""
    shapes = [[[step.num, step.inputs, step.layers] for step in _steps(part)] for part in parts]
    subject = {
        "what": "number format of layers",
        "library": native.name,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "shapes": shapes,
        "rows": min(rows, MOST_ROWS),
        "dtypes": [NAMES[dtype] for dtype in dtypes],
        "processor": cpu_model(),
    }
    by_name = {NAMES[dtype]: dtype for dtype in dtypes}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the first of several learners decides for all
            doing = "measuring the number formats of these layers"
            stack.enter_context(alone(file_of(subject), doing, most_s=MOST_S))
        if (known := recall(subject, by_name.__getitem__)) is not None:
            return known
        seconds = _seconds(parts, min(rows, MOST_ROWS), dtypes)
        fastest = min(seconds, key=seconds.__getitem__)
        remember(subject, NAMES[fastest])
        return fastest


def _seconds(
    parts: Sequence[NativeSequential], rows: int, dtypes: Sequence[torch.dtype]
) -> dict[torch.dtype, float]:
    """Seconds of all steps in each format, natively where the part has it: the fastest of ``ROUNDS``."""
    # The CPU time of a single thread does not depend on the machine's other load.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    totals = dict.fromkeys(dtypes, 0.0)
    for part in parts:
        for compute in (_gradients(step, rows) for step in _steps(part)):
            least = dict.fromkeys(dtypes, float("inf"))
            for turn in range(ROUNDS + 1):  # the first one warms up
                for dtype in dtypes:
                    began_s = clock()
                    compute(dtype, dtype in part.formats)
                    least[dtype] = min(least[dtype], clock() - began_s) if turn else least[dtype]
            totals = {dtype: totals[dtype] + least[dtype] for dtype in dtypes}
    return totals


def distance(results: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative Euclidean distance of a tensor from the expected one; infinite for NaN."""
    found = [
        float((result.double() - right.double()).norm() / right.double().norm().clamp(min=1e-30))
        for result, right in zip(map(Tensor.detach, results), map(Tensor.detach, expected), strict=True)
    ]
    return max((each if each == each else float("inf")) for each in found)
