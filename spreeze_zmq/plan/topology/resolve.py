"""Resolves "auto" to a number of processes or threads, or to a device of this machine."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

from spreeze_zmq.base.gpus import num_usable_gpus
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.roles import (
    ACTOR_LEARNER,
    LEARNERS,
    MEMBER,
    MOST_LAUNCHED,
    MOST_PROCESSES,
    SAMPLER,
)
from spreeze_zmq.plan.topology.tables import Mistakes

#: Upper bound of "auto" samplers on a machine of fewer cores: an environment that waits needs no core.
MAX_SAMPLERS_ON_FEW_CORES = 8


def most_samplers(roles: Collection[str], num_groups: int, *, by_hand: bool) -> int:
    """How many samplers a run has room for beside the processes of its other roles.

    Args:
        roles: of the run.
        num_groups: of which each but the first is a process here.
        by_hand: somebody starts the samplers, and not the launcher.
    """
    others = sum(num_groups - 1 if role == MEMBER else 1 for role in roles if role != SAMPLER)
    return (MOST_PROCESSES if by_hand else MOST_LAUNCHED) - others


def check_count(written: int | list[int] | str, most: int, mistakes: Mistakes) -> None:
    """Note a number of samplers, or the end of its range, that a run has no room for."""
    if not isinstance(written, str) and (high := written if isinstance(written, int) else written[1]) > most:
        problem = (
            f"expected at most {most:,}, got {high:,}: a run has room for no more beside its other roles"
        )
        mistakes.add(("components", SAMPLER, "count"), problem, "write more components.sampler.envs of each")


def resolve_count(
    role: str,
    written: int | list[int] | str,
    cores: int,
    num_learners: int,
    most: int = MOST_LAUNCHED,
    of_use: int = MOST_PROCESSES,
) -> Count:
    """Number of processes at the start, and its range: samplers get the cores that learners leave, and are
    at most ``most``; unless a number is written, they begin with at most ``of_use``.
    """
    automatic = min(max(1, cores - num_learners), of_use) if role == SAMPLER else 1
    if isinstance(written, int):
        return Count(written, written, written)
    if isinstance(written, str):
        highest = max(cores, MAX_SAMPLERS_ON_FEW_CORES) if role == SAMPLER else 1
        return Count(min(automatic, most), 1, min(highest, most))
    low, high = written
    return Count(min(max(automatic, low), high), low, high)


def resolve_threads(role: str, written: int | str, cores: int, num_samplers: int, num_learners: int) -> int:
    """Threads of each process: learners share the cores that samplers leave; other roles have one."""
    if isinstance(written, int):
        return written
    return max(1, (cores - num_samplers) // num_learners) if role in LEARNERS else 1


def resolve_device(role: str, written: str, num_devices: int) -> str:
    """A device with its index: "auto" puts the actor-learner on a second GPU if there is one."""
    if written == "cuda":
        return "cuda:0"
    if written != "auto":
        return written
    if num_devices == 0:
        return "cpu"
    return f"cuda:{1 if role == ACTOR_LEARNER and num_devices > 1 else 0}"


def device_problem(written: str, num_devices: int, torch_has_cuda: bool) -> str:
    """Why this machine cannot use a device; empty if it can."""
    if not written.startswith("cuda"):
        return ""
    index = int(written.partition(":")[2] or 0)
    if index < num_devices and torch_has_cuda:
        return ""
    if index < num_devices:
        return f'"{written}" needs a torch with CUDA, and the one installed has none'
    amount = f"{num_devices or 'no'} CUDA device{'s' if num_devices != 1 else ''}"
    return f'"{written}" is absent: this machine has {amount}'


@cache
def num_cuda_devices() -> int:
    """Number of NVIDIA GPUs that this process may use, counted without importing torch."""
    return num_visible(num_usable_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def num_visible(present: int, listed: str | None) -> int:
    """Number of GPUs that CUDA_VISIBLE_DEVICES, ``listed``, leaves. An invalid entry hides all after it, one
    that comes twice all of them; of the instances of MIG a process has the first.
    """
    if listed is None or present == 0:
        return present
    found: list[str] = []
    for name in map(str.strip, listed.split(",")):
        if not name.startswith(("GPU-", "MIG-")) and not (name.isdecimal() and int(name) < present):
            break
        if name in found:
            return 0
        found.append(name)
    return 1 if found and found[0].startswith("MIG-") else len(found)


@cache
def torch_has_cuda() -> bool:
    """Whether the installed torch was built with CUDA, read from its version file: importing it is slow."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return True
    return re.search(r"^cuda\b[^=]*=\s*None", text, re.MULTILINE) is None
