"""The seeds of environments, and of the generators that all code of a process shares."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from spreeze_zmq.base.importing import loaded

#: Seeds that are drawn are below this: some environments take a C int, others hand theirs to
#: ``np.random.seed``.
SEEDS = 2**31


def seed_for(number: int, num: int) -> int:
    """The first of ``num`` seeds, all below ``SEEDS``: ``number`` itself, unless they would exceed that."""
    return number % (SEEDS - num)


def seeds_of(env_id: str, num_envs: int, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
    """A seed for each environment: ``seed + i``, or ``seed[i]``; ``None`` continues a random state.

    Raises:
        ValueError: there are more or fewer seeds than environments.
    """
    if seed is None or isinstance(seed, (int, np.integer)):
        return [None if seed is None else int(seed) + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"{env_id}: {num_envs} seeds expected, got {len(seed)}")
    return seed


def seed_after_failure(seed: int, row: int, num_failures: int, restarts: int) -> int:
    """A new seed for the environment ``row`` of a batch; it differs from failure to failure, and for each
    number of ``restarts`` of its process, which counts them again.
    """
    word = np.random.SeedSequence((seed % 2**63, row, num_failures, restarts)).generate_state(1)[0]
    return int(word) % SEEDS


@contextmanager
def shared_generators_seeded(seed: int) -> Iterator[None]:
    """Seed what ``random``, ``np.random`` and ``torch`` draw from without a generator of one's own, for what
    the body makes: a forked process begins with NumPy's and torch's as its parent has them, and another one
    with none that a run could repeat. torch is not imported for it; where the body does, it is seeded then.
    """
    seed_shared_generators(seed)
    before = loaded("torch")
    if before is not None:
        before.manual_seed(seed)
    yield
    if before is None and (after := loaded("torch")) is not None:
        after.manual_seed(seed)


@contextmanager
def shared_generators_kept() -> Iterator[None]:
    """Leave what ``random``, ``np.random`` and ``torch`` draw from as it was before the body, which may seed
    or use them.
    """
    torch, states = loaded("torch"), (random.getstate(), np.random.get_state())
    drawn = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch is not None:
            torch.set_rng_state(drawn)


def seed_shared_generators(seed: int) -> None:
    """Seed what ``random`` and ``np.random`` draw from; NumPy takes the last 32 bits."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


def shared_generators() -> tuple[random.Random, np.random.RandomState]:
    """What ``random`` and ``np.random`` draw from."""
    return random._inst, np.random.mtrand._rand
