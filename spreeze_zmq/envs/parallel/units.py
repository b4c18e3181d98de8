"""Units: the environments that a worker steps at once, and how their numbers travel in messages."""

from __future__ import annotations

import struct

import numpy as np

#: Number of a unit in a message; its complement ``~n`` asks for a reset, or is the number of a dead worker.
UNIT = struct.Struct("<i")
#: Largest message to or from a worker.
MESSAGE_BYTES = 1 << 17


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
