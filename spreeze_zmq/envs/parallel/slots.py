"""What a batch and its workers share: arrays in shared memory, units of environments, message formats."""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment

#: The number of a unit: a request to step it, or the report that it is done. In a report the complement
#: ``~w`` means that worker ``w`` has died.
UNIT = struct.Struct("<i")
#: Starts a request to reset units; ``{"units": [...], "options": ...}`` follows as JSON.
RESET = UNIT.pack(-1)
#: Largest message to or from a worker.
MESSAGE_BYTES = 1 << 17
#: Each array starts on its own cache line.
ALIGNMENT = 64

#: Shape and name of the dtype of each array, by the name of its attribute in ``Slots``.
Arrays = Mapping[str, tuple[Sequence[int], str]]


def arrays_for(
    env_id: str, num_envs: int, num_workers: int, observation: Space[Any], action: Space[Any]
) -> Arrays:
    """The arrays that a batch with these spaces shares with its workers.

    Raises:
        InvalidEnvironment: observations or actions have no fixed shape.
    """
    for name, space in (("observations", observation), ("actions", action)):
        if space.shape is None or space.dtype is None:
            raise InvalidEnvironment(
                f"{env_id}: its {name} are a {type(space).__name__}, which does not fit into shared memory"
                " (num_workers=0 steps it in this process)"
            )
    obs = (num_envs, *(observation.shape or ())), str(observation.dtype)
    flags = ("terminated", "truncated", "failed", "lost", "chosen")
    return {
        **dict.fromkeys(("obs", "final_obs"), obs),
        "action": ((num_envs, *(action.shape or ())), str(action.dtype)),
        "reward": ((num_envs,), "float64"),
        **dict.fromkeys(flags, ((num_envs,), "bool")),
        "seed": ((num_envs,), "int64"),
        **dict.fromkeys(("pids", "exits", "num_messages"), ((num_workers,), "int64")),
        "at": ((num_workers, 2), "int64"),
    }


class Slots:
    """The shared arrays, in anonymous memory that the kernel frees when the last process closes it.

    Args:
        arrays: shapes and dtypes, from ``arrays_for``.
        fd: file descriptor of existing memory; by default new memory is allocated.
    """

    obs: NDArray[Any]  # [N, *obs], written by the worker
    final_obs: NDArray[Any]  # [N, *obs] of the episodes that ended
    action: NDArray[Any]  # [N, *action], written by the batch
    reward: NDArray[np.float64]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    failed: NDArray[np.bool_]  # [N]: the step does not count; a message has the reason
    lost: NDArray[np.bool_]  # [N]: the state was lost with a worker; the next step truncates the episode
    chosen: NDArray[np.bool_]  # [N]: the environments to reset
    seed: NDArray[np.int64]  # [N]: seeds of a reset, negative for none
    pids: NDArray[np.int64]  # [workers]: process ids, 0 after the process has ended
    exits: NDArray[np.int64]  # [workers]: exit code of the last process, negative for a signal
    num_messages: NDArray[np.int64]  # [workers]: failures and infos that each worker has sent
    at: NDArray[np.int64]  # [workers, 2]: first row of the unit being stepped, environment within it

    def __init__(self, arrays: Arrays, fd: int | None = None):
        self.arrays = arrays
        offsets, size = {}, 0
        for name, (shape, dtype) in arrays.items():
            offsets[name] = size
            size += -(-math.prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
        self.fd = os.memfd_create("spreeze-envs") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        for name, (shape, dtype) in arrays.items():
            setattr(self, name, np.ndarray(shape, dtype, memory, offsets[name]))


def divide(num_envs: int, num_workers: int, batch_size: int, single: bool) -> list[list[tuple[int, int]]]:
    """Divide the rows of a batch into units: for each worker a list of ``(first row, number of rows)``.

    Args:
        num_envs: number of environments.
        num_workers: number of workers, at most ``num_envs``.
        batch_size: number of environments that ``recv`` waits for. If it is ``num_envs``, each worker has one
            unit; otherwise all units have the same size, which divides ``batch_size``.
        single: whether a unit of one environment costs no more per environment than a larger one.
    """
    if batch_size == num_envs:
        return [[(int(rows[0]), len(rows))] for rows in np.array_split(np.arange(num_envs), num_workers)]
    sizes = [1] if single else [n for n in range(1, batch_size + 1) if not (batch_size % n or num_envs % n)]
    even = [size for size in sizes if num_envs // size % num_workers == 0]
    fitting = [size for size in sizes if num_envs // size >= num_workers]
    size = max(even or fitting)
    shares = np.array_split(np.arange(num_envs // size), num_workers)
    return [[(int(unit) * size, size) for unit in share] for share in shares]
