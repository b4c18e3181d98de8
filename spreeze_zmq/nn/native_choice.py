"""Chooses which layers run natively and in which number format, by measuring a learner's own shapes.

Measurements are cached for the user: all runs on one machine choose alike, and so compute the same bits.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from spreeze_zmq.native.library import Library, library
from spreeze_zmq.nn.native_layers import STEPS, NativeSequential, Step
from spreeze_zmq.user_cache import cache_folder

log = logging.getLogger("spreeze")

#: Larger batches are measured with this many rows: the cost of a row hardly changes beyond.
MOST_ROWS = 1024
#: Measurements of each way, in turn; the fastest counts.
ROUNDS = 7
#: Relative distance from torch's float32 results beyond which native results are wrong, unless it is at most
#: twice that of torch's results in the same format.
TOLERANCE = 1e-4
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
#: Seconds of each way, such as ``"torch fp32"`` or ``"native bf16"``; infinite where its results were wrong.
Times = dict[str, float]


class Choice(NamedTuple):
    """The result of :func:`choose`.

    Attributes:
        dtype: number format of the products.
        line: for the log.
    """

    dtype: torch.dtype
    line: str


def choose(modules: Mapping[str, torch.nn.Module], rows: int, dtypes: Sequence[torch.dtype]) -> Choice:
    """Make each ``Sequential`` of linear layers in these modules native where that is faster than torch.

    Args:
        modules: networks by name, on their device.
        rows: batch size.
        dtypes: allowed formats of the products, at least one; the fastest is taken.
    """
    parts = [(name, part) for name, module in modules.items() for part in native_parts(module)]
    on_cpu = all(parameter.device.type == "cpu" for _, part in parts for parameter in part.parameters())
    native = library()
    if not parts or not on_cpu:
        return Choice(dtypes[-1], "layers: torch")
    if native.code is None and len(dtypes) == 1:
        return Choice(dtypes[0], f"layers: torch, about half as fast as native code: {native.problem}")
    shapes = {_shape(part): part for _, part in parts}
    of_shape = {
        shape: times_of(part, shape, min(rows, MOST_ROWS), dtypes, native) for shape, part in shapes.items()
    }
    times = [of_shape[_shape(part)] for _, part in parts]
    totals = {dtype: sum(_best(each, dtype) for each in times) for dtype in dtypes}
    dtype = min(totals, key=lambda dtype: totals[dtype])
    for (_, part), each in zip(parts, times, strict=True):
        part.formats = frozenset(allowed for allowed in dtypes if _ratio(each, allowed) > 1.0)
    names = sorted({name for name, part in parts if dtype in part.formats})
    return Choice(dtype, _line(native, names, NAMES[dtype], [_ratio(each, dtype) for each in times]))


def leave_to_torch(module: torch.nn.Module) -> None:
    """Let torch compute every layer of a module from now on."""
    for part in native_parts(module):
        part.formats = frozenset()


def _line(native: Library, names: Sequence[str], dtype: str, ratios: Sequence[float]) -> str:
    """The result for the log; ``names`` are the networks with native layers."""
    if native.code is None:
        return f"layers: torch in {dtype}; no native ones: {native.problem}"
    speed = f"{min(ratios):.2f} to {max(ratios):.2f} times torch's speed"
    speed += f" ({native.problem})" if native.problem else ""
    if not names:
        return f"layers: torch in {dtype}; native ones ({native.instructions}) have {speed}"
    return f"layers: native ({native.instructions}) in {dtype}, {speed}: {', '.join(names)}"


def native_parts(module: torch.nn.Module) -> list[NativeSequential]:
    """Turn every ``Sequential`` of a module into a :class:`NativeSequential`; those with a native step."""
    found = []
    for part in module.modules():
        if type(part) is torch.nn.Sequential:
            part.__class__ = NativeSequential
        if isinstance(part, NativeSequential) and any(isinstance(step, STEPS) for step in part.steps()):
            found.append(part)
    return found


def _shape(part: NativeSequential) -> str:
    """The shapes of the native steps of a part, which decide how long they take."""
    return json.dumps([[run.num, run.inputs, run.layers] for run in part.steps() if isinstance(run, STEPS)])


def _best(times: Times, dtype: torch.dtype) -> float:
    return min(seconds for way, seconds in times.items() if way.endswith(NAMES[dtype]))


def _ratio(times: Times, dtype: torch.dtype) -> float:
    """Speed of the native way divided by torch's; 0 where there is no native way."""
    name = NAMES[dtype]
    return times[f"torch {name}"] / times[f"native {name}"] if f"native {name}" in times else 0.0


# --- measurement


def times_of(
    part: NativeSequential, shape: str, rows: int, dtypes: Sequence[torch.dtype], native: Library
) -> Times:
    """Seconds of the native steps of a part, forward and backward, by way: cached ones, else measured."""
    subject = {
        "library": native.name,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "shape": shape,
        "rows": rows,
        "dtypes": [NAMES[dtype] for dtype in dtypes],
        "processor": _processor(),
    }
    key = hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()[:24]
    path = cache_folder() / f"layers-{key}.json"
    if (known := _kept(path)) is not None:
        return known
    ways: Times = {}
    for run in part.steps():
        if isinstance(run, STEPS):
            for name, seconds in measured(run, rows, dtypes, native).items():
                ways[name] = ways.get(name, 0.0) + seconds
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(ways), encoding="utf-8")
        with contextlib.suppress(FileExistsError):  # the first of several learners decides for all
            os.link(aside, path)
        aside.unlink()
    except OSError as error:
        log.warning("what was measured is not kept: %s: %s", path, error.strerror)
    return _kept(path) or ways


def _kept(path: Path) -> Times | None:
    """The times in a cache file; None where it is missing or unreadable."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {str(way): float(seconds) for way, seconds in kept.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def measured(run: Step, rows: int, dtypes: Sequence[torch.dtype], native: Library) -> Times:
    """Seconds of one step, forward and backward, by way: the fastest of ``ROUNDS``."""
    run, source = copy.deepcopy(run), torch.Generator().manual_seed(0)
    parameters = [parameter.requires_grad_(True) for parameter in run.parameters()]
    x = torch.randn(rows, run.inputs, generator=source)
    x = x.expand(run.num, *x.shape) if run.num else x
    gradient = torch.randn(*x.shape[:-1], run.outputs, generator=source)

    def by(call: Callable[[Tensor], Tensor]) -> list[Tensor]:
        output = call(x)
        return [output.detach(), *torch.autograd.grad(output, parameters, gradient.to(output.dtype))]

    ways: dict[str, Callable[[], list[Tensor]]] = {}
    for dtype in dtypes:
        bf16 = dtype == torch.bfloat16
        ways[f"torch {NAMES[dtype]}"] = partial(_autocast, bf16, partial(by, run.in_torch))
        if native.code is not None and (not bf16 or native.code.spreeze_has_bf16()):
            natively = partial(by, partial(run.__call__, bf16=bf16))
            ways[f"native {NAMES[dtype]}"] = natively if run.in_bf16 else partial(_autocast, bf16, natively)
    exact = by(run.in_torch)
    off = {name: distance(way(), exact) for name, way in ways.items()}
    wrong = {name for name in ways if not off[name] <= max(TOLERANCE, 2.0 * off[f"torch {name.split()[1]}"])}
    # The CPU time of a single thread does not depend on the machine's other load.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began_s = clock()
            way()
            least[name] = min(least[name], clock() - began_s)
    return {name: float("inf") if name in wrong else seconds for name, seconds in least.items()}


def _autocast(bf16: bool, call: Callable[[], list[Tensor]]) -> list[Tensor]:
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        return call()


def distance(results: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative Euclidean distance of a tensor from the expected one; infinite for NaN."""
    found = [
        float(
            (result.detach().double() - right.detach().double()).norm()
            / right.double().norm().clamp(min=1e-30)
        )
        for result, right in zip(results, expected, strict=True)
    ]
    return max((each if each == each else float("inf")) for each in found)
