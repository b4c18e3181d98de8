"""The cores that each process may run on: learners get cores of their own, all others stay off them.

A learner with a core of its own keeps its caches and never waits for a time slice. But samplers cannot use
that core while the learner starves, so nothing is pinned on small machines. Groups that share a machine have
cores of their own each, and so have runs beside each other: each claims those of its learners.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

from spreeze_zmq.base.machine import claim, usable_cores
from spreeze_zmq.plan import tuning
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import MEMBER, ROLES, SAMPLER

#: The largest share of the machine's cores that "auto" reserves for learners.
MOST_APART = 0.25


@dataclass(frozen=True)
class Pinning:
    """The CPUs of each process.

    Attributes:
        cpus: process or role -> its CPU numbers; a process that is not listed runs anywhere.
        reason: one line.
        claims: held as long as the run lives.
    """

    cpus: Mapping[str, tuple[int, ...]]
    reason: str
    claims: tuple[socket.socket, ...] = ()

    def of(self, name: str) -> frozenset[int] | None:
        """The CPUs of ``ROLE-INDEX``; None for any."""
        cpus = self.cpus.get(name) or self.cpus.get(name.rpartition("-")[0])
        return frozenset(cpus) if cpus else None

    def settled(self, plan: Plan, *, known: bool) -> Plan:
        """The plan with this pinning. Where samplers keep off the learners' cores, of which each may be two
        CPUs, a number of them that the broker may move begins with at most one for each CPU that is left.

        Args:
            plan: the run's.
            known: an earlier run has settled on the number.
        """
        plan = replace(plan, pinning={"cpus": self.cpus, "reason": self.reason})
        if SAMPLER not in self.cpus or known or not tuning.movable(plan):
            return plan
        if plan.balance.publish_every_updates:  # the size of a version follows from the number at the start
            return plan
        sampler = plan.components[SAMPLER]
        initial = max(sampler.count.minimum, min(sampler.count.initial, len(self.cpus[SAMPLER])))
        sampler = replace(sampler, count=replace(sampler.count, initial=initial))
        return replace(plan, components={**plan.components, SAMPLER: sampler})

    def close(self) -> None:
        """Leave the cores to other runs."""
        for held in self.claims:
            held.close()


def pinned(plan: Plan, cores: Sequence[Sequence[int]], core_time: float = math.inf) -> Pinning:
    """The pinning of a plan's processes to physical cores, the learners' to those that no other run has.

    Args:
        plan: the run's.
        cores: for each physical core the CPUs that the run may use.
        core_time: CPU seconds a second that it may use of them.
    """
    learners = {
        f"{role}-0": plan.components[role].threads
        for role in plan.learning.learners
        if plan.components[role].launched and role not in plan.placement
    }
    wanted, needed = plan.balance.pin, sum(learners.values())
    if wanted == "auto" and core_time < sum(map(len, cores)):
        return Pinning({}, "nothing is pinned: the run's quota gives it time, and no core")
    alone = pin(cores, learners, wanted)
    if not alone.cpus or needed >= len(cores):
        return alone
    own, claims, taken = claimed(cores, needed)
    others = [core for core in cores if core not in own]
    found = replace(pin([*own, *others], learners, wanted, taken), claims=claims)
    if not found.cpus:
        found.close()
    return found


def claimed(
    cores: Sequence[Sequence[int]], number: int
) -> tuple[list[Sequence[int]], tuple[socket.socket, ...], int]:
    """Claim the first ``number`` cores that no other launcher has, or as many as there are; returns them,
    what holds them, and how many were found taken.
    """
    own: list[Sequence[int]] = []
    claims: list[socket.socket] = []
    for tried, core in enumerate(cores):
        if len(own) == number:
            return own, tuple(claims), tried - number
        held = [found for cpu in core if (found := claim(f"core-{cpu}")) is not None]
        if len(held) < len(core):
            for one in held:
                one.close()
            continue
        own.append(core)
        claims += held
    return own, tuple(claims), len(cores) - len(own)


def pin(cores: Sequence[Sequence[int]], learners: Mapping[str, int], pin: str, taken: int = 0) -> Pinning:
    """Give learners a physical core for each of their threads, with all of its hyperthreads.

    Args:
        cores: for each physical core the CPUs that the run may use.
        learners: process -> its threads.
        pin: ``auto`` reserves cores where these are a small part of the machine, ``always`` wherever one is
            left for the others, ``never`` none. Where ``always`` leaves none, the learners share all cores
            among themselves, and the others run anywhere.
        taken: cores of the learners of other runs, which are part of what ``auto`` reserves.
    """
    needed, available = sum(learners.values()), len(cores)
    if pin == "never":
        return Pinning({}, "nothing is pinned: balance.pin is false")
    if not learners:
        return Pinning({}, "nothing is pinned: no learner runs here")
    if pin == "auto" and needed + taken > MOST_APART * available:
        beside = f" beside the {taken} of other runs'" if taken else ""
        few = f"the learners' {needed} of {available} cores{beside} are more than {100 * MOST_APART:.0f} %"
        return Pinning({}, f"nothing is pinned: {few}, and samplers could not use them")
    if available < 2:
        return Pinning({}, "nothing is pinned: there is one core")
    if needed < available:
        free = iter(cores)
        own = {name: _cpus(islice(free, threads)) for name, threads in learners.items()}
        others = dict.fromkeys((role.name for role in ROLES.values() if role.keeps_off), _cpus(free))
        reason = f"{_shown(own)}; everybody else on the other {available - needed} cores"
        return Pinning({**own, **others}, reason)
    shares = {name: cores[number :: len(learners)] for number, name in enumerate(learners)}
    own = {name: _cpus(share) for name, share in shares.items() if share}
    reason = f"{_shown(own)}; everybody else anywhere, since {available} cores leave none for them"
    return Pinning(own, reason)


def _cpus(cores: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted(chain.from_iterable(cores)))


def _shown(own: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} on CPU {_spans(cpus)}" for name, cpus in own.items())


def _spans(cpus: Sequence[int]) -> str:
    """``0-3,8`` for 0, 1, 2, 3 and 8, as Linux writes it."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], cpu]
        else:
            spans.append([cpu])
    return ",".join("-".join(map(str, span)) for span in spans)


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
