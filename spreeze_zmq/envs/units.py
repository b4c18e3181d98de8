"""How the environments of a batch are divided among worker processes, and what each steps at once."""

from __future__ import annotations

import numpy as np


def divide(num_envs: int, num_workers: int, batch_size: int, single: bool) -> list[list[tuple[int, int]]]:
    """Which rows each worker steps, and in which units: for each worker ``(first row, how many)``.

    Args:
        num_envs: how many environments.
        num_workers: at most ``num_envs``.
        batch_size: below ``num_envs``, units are equal and fill batches exactly.
        single: whether single environments cost no more than groups of them.
    """
    if batch_size == num_envs:
        return [[(int(rows[0]), len(rows))] for rows in np.array_split(np.arange(num_envs), num_workers)]
    sizes = [1] if single else [n for n in range(1, batch_size + 1) if not (batch_size % n or num_envs % n)]
    even = [size for size in sizes if num_envs // size % num_workers == 0]
    fitting = [size for size in sizes if num_envs // size >= num_workers]
    size = max(even or fitting)
    shares = np.array_split(np.arange(num_envs // size), num_workers)
    return [[(int(unit) * size, size) for unit in share] for share in shares]
