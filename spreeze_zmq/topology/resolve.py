"""The rules by which "auto" becomes a number or a device of this machine."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from pathlib import Path

from spreeze_zmq.plan.plan import Count
from spreeze_zmq.plan.roles import ACTOR_LEARNER, LEARNERS, SAMPLER

#: "auto" samplers may become so many even on few cores: environments that wait for something need none.
FEW_CORES_MOST = 8


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def resolve_count(
    role: str, written: int | list[int] | str, cores: int, num_learners: int = len(LEARNERS)
) -> Count:
    """How many processes to begin with, and within which range.

    Samplers take what the learners leave of the cores; of every other role there is one.
    """
    automatic = max(1, cores - num_learners) if role == SAMPLER else 1
    if isinstance(written, int):
        return Count(written, written, written)
    if isinstance(written, str):
        return Count(automatic, 1, max(cores, FEW_CORES_MOST) if role == SAMPLER else 1)
    low, high = written
    return Count(min(max(automatic, low), high), low, high)


def resolve_threads(
    role: str, written: int | str, cores: int, num_samplers: int, num_learners: int = len(LEARNERS)
) -> int:
    """Threads of each process: the learners share what the samplers leave, all else is single-threaded."""
    if isinstance(written, int):
        return written
    return max(1, (cores - num_samplers) // num_learners) if role in LEARNERS else 1


def resolve_device(role: str, written: str, num_devices: int) -> str:
    """The learners on two GPUs where there are two, else both on the first, else on the CPU."""
    if written == "cuda":
        return "cuda:0"
    if written != "auto":
        return written
    if num_devices == 0:
        return "cpu"
    return f"cuda:{1 if role == ACTOR_LEARNER and num_devices > 1 else 0}"


def device_of(settled: str, index: int) -> str:
    """The device of one of several processes: on the GPU that is written the first, each on the next one."""
    kind, _, first = settled.partition(":")
    return f"{kind}:{int(first or 0) + index}" if kind == "cuda" else settled


def device_problem(written: str, num_devices: int, torch_has_cuda: bool) -> str:
    """Why this machine has no such device; empty where it has."""
    if not written.startswith("cuda"):
        return ""
    index = int(written.partition(":")[2] or 0)
    if index < num_devices:
        return (
            "" if torch_has_cuda else f'"{written}" needs a torch with CUDA, and the one installed has none'
        )
    amount = f"{num_devices or 'no'} CUDA device{'s' if num_devices != 1 else ''}"
    return f'"{written}" is absent: this machine has {amount}'


@cache
def num_cuda_devices() -> int:
    """NVIDIA GPUs that this process may use, seen without importing torch."""
    driven = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    nodes = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").glob("nvidia*"))
    # A container has fewer nodes than the driver has GPUs; a fresh machine makes them at their first use.
    present = min(driven, nodes) or max(driven, nodes)
    return num_visible(present, os.environ.get("CUDA_VISIBLE_DEVICES"))


def num_visible(present: int, listed: str | None) -> int:
    """Of ``present`` GPUs those that CUDA_VISIBLE_DEVICES lists; the first invalid one hides all after it."""
    if listed is None or present == 0:
        return present
    number = 0
    for name in map(str.strip, listed.split(",")):
        if not name.startswith(("GPU-", "MIG-")) and not (name.isdecimal() and int(name) < present):
            break
        number += 1
    return number


@cache
def torch_has_cuda() -> bool:
    """Whether the torch installed here was built with CUDA, by its version file: importing it is slow."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return True
    return re.search(r"^cuda\b[^=]*=\s*None", text, re.MULTILINE) is None


def usable_devices() -> int:
    """CUDA devices that the installed torch can use."""
    return num_cuda_devices() if torch_has_cuda() else 0
