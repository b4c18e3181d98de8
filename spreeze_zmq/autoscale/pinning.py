"""Which cores each process may run on: learners on cores of their own, all others off them.

A learner whose core is its own keeps its caches and waits for nobody's time slice. But a core that is set
apart is lost to the samplers while its learner starves, so that small machines are left alone. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER, VISUALIZER

if TYPE_CHECKING:
    from spreeze_zmq.plan.plan import Plan

#: The largest part of the machine's cores that "auto" sets apart.
MOST_APART = 0.25
#: Roles kept off the learners' cores. The broker is idle, and sees the whole machine's load.
OTHERS = (SAMPLER, EVALUATOR, VISUALIZER)


@dataclass(frozen=True)
class Pinning:
    """Where processes may run.

    Attributes:
        cpus: process or role -> numbers of its CPUs; one that is missing runs anywhere.
        reason: one line.
    """

    cpus: Mapping[str, tuple[int, ...]]
    reason: str

    def of(self, name: str) -> frozenset[int] | None:
        """The CPUs of ``ROLE-INDEX``; None for any."""
        found = self.cpus.get(name) or self.cpus.get(name.rpartition("-")[0])
        return frozenset(found) if found else None


def pinned(plan: Plan, cores: Sequence[Sequence[int]]) -> Pinning:
    """The pinning of a plan's processes to physical cores, each given as its logical CPUs."""
    learners = {
        f"{role}-0": plan.components[role].threads
        for role in plan.learning.learners
        if plan.components[role].launched
    }
    return pin(cores, learners, plan.balance.pin)


def pin(cores: Sequence[Sequence[int]], learners: Mapping[str, int], pin: str) -> Pinning:
    """Learners first, a physical core for each of their threads, with all of its hyperthreads.

    Args:
        cores: of each physical core the CPUs that the run may use.
        learners: process -> its threads.
        pin: ``auto`` sets cores apart where these are a small part of the machine, ``always`` wherever one is
            left for the others, ``never`` none. Where ``always`` leaves none, the learners share all cores
            out among themselves, and the others run anywhere.
    """
    wanted, there = sum(learners.values()), len(cores)
    if pin == "never":
        return Pinning({}, "nothing is pinned: balance.pin is false")
    if pin == "auto" and wanted > MOST_APART * there:
        few = f"the learners' {wanted} of {there} cores are more than {MOST_APART:.0%}".replace("%", " %")
        return Pinning({}, f"nothing is pinned: {few}, and samplers could not use them")
    if there < 2:
        return Pinning({}, "nothing is pinned: there is one core")
    if wanted < there:
        own = _dealt(cores, learners)
        rest = tuple(sorted(cpu for core in cores[wanted:] for cpu in core))
        pinned = {**own, **dict.fromkeys(OTHERS, rest)}
        return Pinning(pinned, f"{_said(own)}; everybody else on the other {there - wanted} cores")
    own = {
        name: tuple(sorted(cpu for core in cores[number :: len(learners)] for cpu in core))
        for number, name in enumerate(learners)
        if cores[number :: len(learners)]
    }
    return Pinning(own, f"{_said(own)}; everybody else anywhere, since {there} cores leave none for them")


def _dealt(cores: Sequence[Sequence[int]], learners: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    dealt, taken = {}, 0
    for name, threads in learners.items():
        own = cores[taken : taken + threads]
        dealt[name] = tuple(sorted(cpu for core in own for cpu in core))
        taken += threads
    return dealt


def _said(own: Mapping[str, Sequence[int]]) -> str:
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
