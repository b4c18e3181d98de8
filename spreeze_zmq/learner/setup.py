"""What a run knows of its algorithm before any process starts: the options, the memory of its replays, and
whether an update of an algorithm of the user's own succeeds.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.base.errors import AlgorithmError, InputError
from spreeze_zmq.learner.arithmetic import COUNTED_BATCH, MOST_COUNTED, flops_per_transition, rehearsed_size
from spreeze_zmq.plan.devices import device_of
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import PART_OF
from spreeze_zmq.replay import MEMORY_SHARE, free_bytes, replay_of

#: Transitions of the small replay by which the size of one transition is measured, or one sequence of more.
SAMPLE = 1 << 10


def algorithm_of(plan: Plan) -> tuple[type[Algorithm], Any]:
    """The run's algorithm and its options as the algorithm's own frozen dataclass."""
    algorithm = algorithms.get(plan.run.algorithm)
    values = {name: value for name, value in plan.algorithm.items() if name != "name"}
    return algorithm, algorithms.options_from(algorithm.Options, values)


def replay_bytes(plan: Plan) -> dict[str, int]:
    """Learner -> bytes of its full replay, and of those of sources with a share."""
    shared = bytes_of_sources(plan)
    return {role: own + shared[role] for role, own in own_replay_bytes(plan).items()}


def own_replay_bytes(plan: Plan) -> dict[str, int]:
    """Learner -> bytes of its full replay, which has ``replay_capacity`` transitions."""
    return _bytes_of(plan, 0 if plan.learning.on_policy else plan.algorithm["replay_capacity"])


def bytes_of_sources(plan: Plan) -> dict[str, int]:
    """Learner -> bytes of the replays of sources with a share, whatever its own has room for."""
    shared = sum(rows_of(plan, source) for source in plan.data.values() if source.share is not None)
    return _bytes_of(plan, shared)


def rows_of(plan: Plan, source: DataPlan) -> int:
    """The capacity of the replay of a source with a share: its transitions and those that relabelling makes
    of them; of images, which a stack of frames shares, those before and after each episode, too.
    """
    images = plan.environment.obs_dtype == "uint8"
    frames = (1 + plan.algorithm["frame_stack"]) * source.num_episodes if images else 0
    return plan.learning.rows_each * source.transitions + frames


def _bytes_of(plan: Plan, transitions: int) -> dict[str, int]:
    """Learner -> bytes of so many transitions in a replay; 0 for on-policy rounds, which are discarded after
    training.
    """
    if not transitions:
        return dict.fromkeys(plan.learning.learners, 0)
    kind, options = algorithm_of(plan)
    small = replace(options, replay_capacity=SAMPLE, learning_starts=1)
    sizes = {}
    for role in plan.learning.learners:
        part = PART_OF[role]
        # A table that nobody has written to takes no memory yet.
        about = kind.kept_fields(part, options), plan.environment, small.drawn(part)
        sample = replay_of(*about, "cpu", 0).ring
        each = sample.memory_bytes / (sample.capacity * sample.transitions_per_row)
        sizes[role] = int(transitions * each)
    return sizes


def check_memory(plan: Plan, role: str = "") -> dict[str, int]:
    """The result of :func:`replay_bytes`, after a check of the replays that share this machine's CPU, and of
    those that share the learner's GPU.

    Args:
        plan: of the run.
        role: the learner that runs here; by default those that run where the run is started, whose GPUs are
            left alone.

    Raises:
        InputError: the replays together exceed the memory; names the capacity that fits, or the sources that
            leave no room for any.
    """
    sizes = replay_bytes(plan)
    here = [each for each in sizes if plan.placement.get(each) == plan.placement.get(role)]
    groups = range(1 if role in plan.placement else plan.groups_here)
    own = device_of(plan, role) if role in here else "cpu"
    for device in sorted({"cpu", own}):
        sharing = sorted(
            each for number in groups for each in here if device_of(plan, each, number) == device
        )
        total = sum(sizes[each] for each in sharing)
        room, there_is = _room_of(torch.device(device))
        if total > MEMORY_SHARE * room:
            num_groups = max(map(sharing.count, sharing))
            of_groups = f" of {num_groups} groups" if num_groups > 1 else ""
            raise InputError(
                f"the replays of {' and '.join(dict.fromkeys(sharing))}{of_groups} take {total / 1e9:.1f} GB "
                f"together, {there_is}: {_what_fits(plan, sharing, MEMORY_SHARE * room)}"
            )
    return sizes


def _what_fits(plan: Plan, sharing: Sequence[str], room: float) -> str:
    """What to change so that the replays of learners, each as often as it runs, take so many bytes."""
    all_own, all_shared = own_replay_bytes(plan), bytes_of_sources(plan)
    own, shared = (sum(sizes[role] for role in sharing) for sizes in (all_own, all_shared))
    capacity = int(plan.algorithm["replay_capacity"] * (room - shared) / own)
    if capacity > 0:
        return f"lower algorithm.replay_capacity to at most {capacity:,}"
    keys = " and ".join(f"data.{name}.episodes" for name, each in plan.data.items() if each.share is not None)
    return f"sources with a share alone take {shared / 1e9:.1f} GB of that: read fewer episodes by {keys}"


def bytes_in_memory(plan: Plan) -> int:
    """Bytes of the full replays on the CPU of the machine where the run is started, of all groups there."""
    sizes = replay_bytes(plan)
    here = [each for each in sizes if each not in plan.placement]
    return sum(
        sizes[each]
        for number in range(plan.groups_here)
        for each in here
        if device_of(plan, each, number) == "cpu"
    )


def room_in_memory() -> int:
    """Bytes that replays may take of this machine's free memory."""
    return int(MEMORY_SHARE * free_bytes(torch.device("cpu")))


def _room_of(device: torch.device) -> tuple[int, str]:
    """The bytes that replays may share on a device, and in words: of a CPU what is free, of a GPU all, as the
    replay of another learner may be there already.
    """
    if device.type == "cpu":
        free = free_bytes(device)
        return free, f"{free / 1e9:.1f} GB are free"
    whole = int(torch.cuda.get_device_properties(device).total_memory)
    return whole, f"{device} has {whole / 1e9:.1f} GB"


def rehearse(plan: Plan) -> tuple[str, ...]:
    """Take one update of each part on random numbers, with what prepares and what follows it; nothing for a
    shipped algorithm.

    Returns:
        A line for each thing that is odd about it, and for each operation that pairs every row of a batch
        with every other.

    Raises:
        AlgorithmError: its code raises, or gives what a learner refuses; names file and line.
    """
    if ":" not in plan.run.algorithm:
        return ()
    kind, options = algorithm_of(plan)
    options = replace(options, precision="fp32")
    files = {inspect.getsourcefile(base) for base in kind.__mro__ if base is not object}
    pairs, remarks = PairedRows(files), list[str]()

    def updated(part: str, size: int) -> list[str]:
        half = algorithms.make(part, kind, options, plan.environment, "cpu", 1)
        half.leave_to_torch()
        with pairs:
            flops_per_transition(half, plan.environment, size)
        return half.remarks.lines

    for part in (PART_OF[role] for role in plan.learning.learners):
        try:
            remarks += updated(part, COUNTED_BATCH)
        except AlgorithmError:
            size = rehearsed_size(options)
            if size == COUNTED_BATCH or (pairs.found and size > MOST_COUNTED):  # of size times size numbers
                raise
            remarks += updated(part, size)  # its loss may rely on options.batch_size
    return *dict.fromkeys(remarks), *(
        f"{place}: rows of shape [{rows}, 1] and [{rows}] give [{rows}, {rows}], each beside every other; "
        "if that is not meant, squeeze(1) the first"
        for place, rows in pairs.found.items()
    )


class PairedRows(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, notes operations that broadcast ``[B, 1]`` and ``[B]`` to ``[B, B]``.

    Args:
        files: in which the operations are looked for.

    Attributes:
        found: ``file:line`` -> ``B``.
    """

    def __init__(self, files: set[str | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._files = files
        self.found: dict[str, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled inside; true would import torch's compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at its shapes."""
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor) and output.dim() == 2 and 1 < output.shape[0] == output.shape[1]:
            shapes = [tuple(each.shape) for each in args if isinstance(each, torch.Tensor)]
            rows = output.shape[0]
            if {(rows, 1), (rows,)} <= set(shapes):
                own = (frame for frame in traceback.extract_stack() if frame.filename in self._files)
                last = next(reversed(list(own)), None)
                if last is not None:
                    self.found.setdefault(f"{last.filename}:{last.lineno}", rows)
        return output
