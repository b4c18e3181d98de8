"""The cores of a machine that several groups share: each has its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

from spreeze_zmq.base.machine import usable_cores
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import MEMBER


def divided(cores: Sequence[Sequence[int]], parts: int) -> list[frozenset[int]]:
    """The CPUs of each of several parts of a machine, of as many cores each as possible.

    Args:
        cores: for each physical core its CPUs.
        parts: at most as many as there are cores.
    """
    bounds = [number * len(cores) // parts for number in range(parts + 1)]
    return [frozenset(chain.from_iterable(cores[low:high])) for low, high in pairwise(bounds)]


@contextlib.contextmanager
def own_share(plan: Plan) -> Iterator[Mapping[str, frozenset[int]]]:
    """Keep this process, and what it starts, on the share of the run's own group; yields the CPUs of each
    member that runs on this machine.
    """
    here = [f"{MEMBER}-{index}" for index in range(plan.groups_here - 1)]
    if not here:
        yield {}
        return
    before = os.sched_getaffinity(0)
    cores = usable_cores(before)
    if len(cores) <= len(here):  # its cores are hyperthreads of fewer
        cores = [[cpu] for cpu in sorted(before)]
    own, *others = divided(cores, 1 + len(here))
    os.sched_setaffinity(0, own)
    try:
        yield dict(zip(here, others, strict=True))
    finally:
        os.sched_setaffinity(0, before)
