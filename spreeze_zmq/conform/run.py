"""One conformance run: each act in a run folder of its own, then the checks of what was heard in it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spreeze_zmq.conform import (
    acting_checks,
    evaluator,
    learner_acts,
    learner_checks,
    life,
    sampler_acts,
    sampler_checks,
)
from spreeze_zmq.conform.clauses import BROKEN, Clause, Result, Stalled, judge
from spreeze_zmq.conform.peers import Peers
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, LEARNERS, SAMPLER, VISUALIZER, experience_of

#: Role -> its acts, and its clauses beside everybody's.
ACTS: dict[str, Mapping[str, Callable[[Peers], None]]] = {
    SAMPLER: sampler_acts.ACTS,
    EVALUATOR: evaluator.ACTS,
    **dict.fromkeys(LEARNERS, learner_acts.ACTS),
    VISUALIZER: life.ACTS,
}
OWN = {
    SAMPLER: (*sampler_checks.CLAUSES, *acting_checks.CLAUSES),
    EVALUATOR: evaluator.CLAUSES,
    **learner_checks.CLAUSES,
}
ROLES = tuple(ACTS)
#: The acts that the tier ``fast`` leaves out.
LONG = ("order", "heads")


def clauses_of(role: str) -> tuple[Clause, ...]:
    """All clauses that are checked of a role."""
    return (*life.CLAUSES, *OWN.get(role, ()))


def run(
    role: str,
    command: Sequence[str],
    plan: Plan,
    tier: str = "must",
    only: frozenset[str] = frozenset(),
    patience_s: float = 10.0,
) -> Iterator[Result]:
    """Check the clauses of a tier on one program; yields the results of each act as it ends.

    Args:
        role: that the program takes.
        command: program and arguments; the run file and an index are appended.
        plan: of the run that it is shown.
        tier: one of ``TIERS``.
        only: numbers of clauses: the acts alone in which these are seen; empty for all.
        patience_s: how long is waited for what must come.
    """
    for name, act in ACTS[role].items():
        wanted = [about for about in clauses_of(role) if about.act == name]
        wanted = [about for about in wanted if about.tier == "must" or tier == "should"]
        left_out = name in LONG and tier == "fast" if not only else only.isdisjoint(w.number for w in wanted)
        if wanted and not left_out:
            yield from _seen_in(act, wanted, role, command, shaped(plan, name), (tier, patience_s))


def shaped(plan: Plan, act: str) -> Plan:
    """The plan for an act: in order where that is looked at; else the first learner asks for log_prob, as all
    do that learn by rounds.
    """
    name = experience_of(plan.learning.learners[0])
    asks = act == "main" or plan.learning.on_policy
    fields = set(plan.channels[name].fields) - {"log_prob"} | ({"log_prob"} if asks else set())
    channels = {**plan.channels, name: replace(plan.channels[name], fields=tuple(sorted(fields)))}
    return replace(plan, balance=replace(plan.balance, in_order=act == "order"), channels=channels)


def _seen_in(
    act: Callable[[Peers], None],
    wanted: Sequence[Clause],
    role: str,
    command: Sequence[str],
    plan: Plan,
    how: tuple[str, float],
) -> Iterator[Result]:
    stalled = None
    with tempfile.TemporaryDirectory(prefix="spreeze-conform-") as folder:
        peers = Peers(plan, role, command, Path(folder) / "run", *how)
        try:
            act(peers)
        except Stalled as reason:
            stalled = reason
        finally:
            peers.close()
        yield from (judge(about, peers, stalled) for about in wanted)
    if stalled is not None and stalled.clause not in {about.number for about in wanted}:
        about = next(about for about in clauses_of(role) if about.number == stalled.clause)
        yield Result(about, BROKEN, str(stalled))
