"""Seeds of the environments of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def seeds_of(env_id: str, num_envs: int, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
    """One for each environment: ``seed + i``, or ``seed[i]``; None continues a random state.

    Raises:
        ValueError: there are more or fewer seeds than environments.
    """
    if seed is None or isinstance(seed, (int, np.integer)):
        return [None if seed is None else int(seed) + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"{env_id}: {num_envs} seeds expected, got {len(seed)}")
    return seed


def after_failure(seed: int, row: int, num_failures: int) -> int:
    """For the environment ``row`` that failed, so that its next episode differs."""
    return int(np.random.SeedSequence((seed % 2**63, row, num_failures)).generate_state(1)[0])
