"""What a batch and its workers share: memory with a slot for each environment, units, messages."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from spreeze_zmq.errors import InvalidEnvironment

#: Number of a unit in a message; its complement ``~n`` asks for a reset, or is the number of a dead worker.
UNIT = struct.Struct("<i")
#: Largest message to or from a worker.
MESSAGE_BYTES = 1 << 17
#: Bytes for the options of a reset, as JSON.
OPTIONS_BYTES = 4096
#: Each array starts on its own cache line.
ALIGNMENT = 64


#: Shape and name of the dtype of each array, by the name of its attribute in ``Slots``.
Arrays = Mapping[str, tuple[Sequence[int], str]]


def arrays_for(
    env_id: str, num_envs: int, num_workers: int, observation: Space[Any], action: Space[Any]
) -> Arrays:
    """The arrays of a batch with these spaces.

    Raises:
        InvalidEnvironment: observations or actions are not arrays of one shape.
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
        "options": ((OPTIONS_BYTES,), "uint8"),
    }


class Slots:
    """The shared arrays, in anonymous memory that the kernel frees with the last process that holds it.

    Args:
        arrays: what it holds.
        fd: file descriptor of the memory; by default it is made.
    """

    obs: NDArray[Any]  # [N, *obs], written by the worker
    final_obs: NDArray[Any]  # [N, *obs] of the episodes that ended
    action: NDArray[Any]  # [N, *action], written by the batch
    reward: NDArray[np.float64]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    failed: NDArray[np.bool_]  # [N]: the step did not count; a message has the reason
    lost: NDArray[np.bool_]  # [N]: the state died with a worker; the next step ends the episode
    chosen: NDArray[np.bool_]  # [N]: the environments that a reset is for
    seed: NDArray[np.int64]  # [N] of a reset; negative for none
    pids: NDArray[np.int64]  # [workers], 0 for one that has ended
    exits: NDArray[np.int64]  # [workers] exit code of the last one that ended, negative for a signal
    num_messages: NDArray[np.int64]  # [workers] failures and infos that each worker has sent
    at: NDArray[np.int64]  # [workers, 2]: first row of the unit being stepped, environment within it
    options: NDArray[np.uint8]  # of a reset: JSON, ended by a zero byte

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

    def put_options(self, options: Mapping[str, Any] | None) -> None:
        """Write the options of a reset.

        Raises:
            ValueError: they are not plain data, or too long.
        """
        try:
            text = json.dumps(options).encode()
        except TypeError as error:
            raise ValueError(f"options for environments in workers are plain data, but: {error}") from None
        if len(text) >= OPTIONS_BYTES:
            raise ValueError(f"options of {len(text)} bytes, but workers take at most {OPTIONS_BYTES - 1}")
        self.options[: len(text)] = np.frombuffer(text, np.uint8)
        self.options[len(text)] = 0

    def take_options(self) -> dict[str, Any] | None:
        """Read what ``put_options`` wrote."""
        text = self.options.tobytes()
        options: dict[str, Any] | None = json.loads(text[: text.index(0)])
        return options


def divide(num_envs: int, num_workers: int, batch_size: int, single: bool) -> list[list[tuple[int, int]]]:
    """The units of each worker, as ``(first row, number of rows)``.

    Args:
        num_envs: number of environments.
        num_workers: at most ``num_envs``.
        batch_size: where it is ``num_envs``, each worker's share is one unit; below, units have one size, of
            which ``batch_size`` is a multiple.
        single: whether single environments cost no more than groups.
    """
    if batch_size == num_envs:
        return [[(int(rows[0]), len(rows))] for rows in np.array_split(np.arange(num_envs), num_workers)]
    sizes = [1] if single else [n for n in range(1, batch_size + 1) if not (batch_size % n or num_envs % n)]
    even = [size for size in sizes if num_envs // size % num_workers == 0]
    fitting = [size for size in sizes if num_envs // size >= num_workers]
    size = max(even or fitting)
    shares = np.array_split(np.arange(num_envs // size), num_workers)
    return [[(int(unit) * size, size) for unit in share] for share in shares]
