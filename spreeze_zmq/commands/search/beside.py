"""How many runs of a search live beside each other, and what each has of the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import usable_cores
from spreeze_zmq.envs.numbering import has_number
from spreeze_zmq.launcher.pinning import divided
from spreeze_zmq.plan.devices import divided_gpus
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.screen.terminal.numbers import memory

#: Cores of each run, where there are as many.
CORES = 4


@dataclass(frozen=True)
class Beside:
    """Runs that live at once.

    Attributes:
        cpus: of each.
        gpus: CUDA_VISIBLE_DEVICES of each; empty where each has all.
        why: there are no more, in words; empty where the cores decide, or the user does.
    """

    cpus: Sequence[frozenset[int]]
    gpus: Sequence[str] = ()
    why: str = ""


def beside(jobs: int | None, plans: Sequence[Plan], *, states_device: bool) -> Beside:
    """The runs of a search that live at once.

    Args:
        jobs: as many, where the user says so.
        plans: of the topology as it is first, and with each value that is checked.
        states_device: the topology or a value names a learner's device.

    Raises:
        InputError: there are not as many cores, or their replays do not fit in the memory, or two would take
            the same ports.
    """
    cores = usable_cores(os.sched_getaffinity(0))
    wanted = jobs or max(1, len(cores) // CORES)
    num, parts, why = wanted, wanted, ""
    if wanted > 1 and (why := _why_alone(plans[0])):
        num, parts, mend = 1, 1, "leave --jobs out"
    elif wanted > len(cores):
        raise InputError(f"--jobs {jobs}: this machine has {len(cores)} cores, and each run needs one")
    elif wanted > 1:
        num, why = _that_fit(wanted, plans)
        mend = f"write --jobs {num}, or lower algorithm.replay_capacity"
    if jobs and why:
        raise InputError(f"--jobs {jobs}: {why}; {mend}")
    # What a run has of the cores is part of what its score means: it does not follow from what is free now.
    return Beside(divided(cores, parts)[:num], () if states_device else divided_gpus(num), why)


def _that_fit(wanted: int, plans: Sequence[Plan]) -> tuple[int, str]:
    """How many of the wanted runs have room for their full replays, at least one, and why no more: each alone
    sees only what is free before the others' are full.
    """
    from spreeze_zmq.learner.setup import bytes_in_memory, room_in_memory  # torch, which no --help waits for

    needed, room = max(map(bytes_in_memory, plans)), room_in_memory()
    num = max(1, min(wanted, room // needed)) if needed else wanted
    if num == wanted:
        return num, ""
    return num, f"the replays of a run take up to {memory(needed)}, and all have {memory(room)}"


def _why_alone(plan: Plan) -> str:
    """Why no two runs of a topology may live at once; empty where they may."""
    if has_number(plan.environment.kwargs):
        return "env_kwargs has '{index}', and runs beside each other have the same numbers"
    stated = [f"channels.{name}.endpoint" for name, channel in plan.channels.items() if channel.endpoint]
    stated += [
        f"components.{role}.port" for role, each in plan.components.items() if each.options.get("port")
    ]
    return f"{stated[0]} is stated, and runs beside each other would share it" if stated else ""
