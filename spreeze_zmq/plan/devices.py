"""Which device of this machine each learner has, found without importing torch."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from pathlib import Path

from spreeze_zmq.base.gpus import are_of_one_model, num_usable_gpus
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ACTOR_LEARNER


def resolve_device(role: str, written: str, num_devices: int, group: int = 0, num_learners: int = 2) -> str:
    """A device with its index: "auto" gives each learner of each group the next of the GPUs.

    Args:
        role: a learner.
        written: as the topology has it.
        num_devices: GPUs that "auto" may take.
        group: whose learner it is.
        num_learners: of each group.
    """
    if written == "cuda":
        return "cuda:0"
    if written != "auto":
        return written
    if num_devices == 0:
        return "cpu"
    if num_learners == 1:
        return f"cuda:{group % num_devices}"
    before = 2 * group + (role == ACTOR_LEARNER)
    # Each time round begins one GPU later, so that none has the critic-learners of all groups.
    return f"cuda:{(before + before // num_devices) % num_devices}"


def device_of(plan: Plan, role: str, group: int = 0) -> str:
    """The device of a learner in a group of those that share the machine where the run is started, of which
    ``plan`` is the first one's.
    """
    if group and f"{role}.device" in plan.groups.left_open:
        return resolve_device(role, "auto", num_auto_devices(), group, len(plan.learning.learners))
    return str(plan.components[role].options.get("device", "cpu"))


@cache
def num_auto_devices() -> int:
    """How many GPUs "auto" may take: all that are visible where they are of one model, else the first alone,
    which in CUDA's order is the fastest.
    """
    num_devices = num_cuda_devices() if torch_has_cuda() else 0
    return num_devices if num_devices < 2 or are_of_one_model() else 1


def unused_gpus() -> str:
    """Why "auto" takes none of this machine's GPUs, in words; empty where it takes one, or there is none."""
    if torch_has_cuda() or not (count := num_cuda_devices()):
        return ""
    gpus = f"this machine has {count} GPU{'s' * (count > 1)}"
    return f'{gpus}, and the torch that is installed has no CUDA: install one that has, or write "cpu"'


def divided_gpus(parts: int) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each of several runs beside each other, as many GPUs each as possible; none
    where there are no two for "auto".
    """
    if parts < 2 or (num_devices := num_auto_devices()) < 2:
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(index) for index in range(num_devices)] if listed is None else listed.split(",")
    each = max(1, num_devices // parts)
    own = ([names[(part * each + i) % num_devices].strip() for i in range(each)] for part in range(parts))
    return [",".join(part) for part in own]


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
