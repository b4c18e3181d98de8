"""Runs the suite on one program: each act in a run folder of its own, then the checks of what it heard."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spreeze_zmq.peers import (
    acting_checks,
    broker_acts,
    broker_checks,
    evaluator,
    every_role,
    every_role_checks,
    head_acts,
    learner_acts,
    learner_checks,
    sampler_acts,
    sampler_checks,
)
from spreeze_zmq.peers.clauses import BROKEN, NOT_VERIFIED, Clause, Result, judge
from spreeze_zmq.peers.peers import Peers, Stalled
from spreeze_zmq.peers.unseen import unseen
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, EVALUATOR, LEARNERS, REPORT, SAMPLER, VISUALIZER, experience_of

#: Role -> its acts, and its clauses besides those of every role.
ACTS: dict[str, Mapping[str, Callable[[Peers], None]]] = {
    SAMPLER: {**sampler_acts.ACTS, **head_acts.ACTS},
    EVALUATOR: evaluator.ACTS,
    **dict.fromkeys(LEARNERS, learner_acts.ACTS),
    VISUALIZER: {},
    BROKER: broker_acts.ACTS,
}
OWN = {
    SAMPLER: (*sampler_checks.CLAUSES, *acting_checks.CLAUSES),
    EVALUATOR: evaluator.CLAUSES,
    **learner_checks.CLAUSES,
}
ROLES = tuple(ACTS)
#: The acts that the tier ``fast`` leaves out.
LONG = ("order", "unheard", "beyond", "heads")


def clauses_of(role: str) -> tuple[Clause, ...]:
    """Every clause that is checked for a role."""
    if role == BROKER:  # the others' reports are what it receives
        return broker_checks.CLAUSES
    return (*every_role_checks.CLAUSES, *OWN.get(role, ()))


def run(
    role: str,
    command: Sequence[str],
    plan: Plan,
    tier: str = "must",
    only: frozenset[str] = frozenset(),
    patience_s: float = 10.0,
) -> Iterator[Result]:
    """Check the clauses of a tier on one program; yields the results of each act when it ends, at last those
    of the clauses that no act judges.

    Args:
        role: the role that the program takes.
        command: program and arguments; the run file and an index are appended.
        plan: the run in which it takes part.
        tier: ``must``; ``fast`` leaves out the longest acts; ``should`` adds the clauses that a run can do
            without.
        only: numbers of clauses, of any tier: run only the acts that check one of these; empty for all acts.
        patience_s: how long to wait for each thing that must happen.
    """
    if any(clause.number in only and clause.tier == "should" for clause in clauses_of(role)):
        tier = "should"
    for name, act in {**every_role.ACTS, **ACTS[role]}.items():
        clauses = [clause for clause in clauses_of(role) if clause.act == name]
        clauses = [clause for clause in clauses if clause.tier == "must" or tier == "should"]
        left_out = only.isdisjoint(c.number for c in clauses) if only else name in LONG and tier == "fast"
        if not clauses or left_out:
            continue
        stalled = None
        with tempfile.TemporaryDirectory(prefix="spreeze-conform-") as folder:
            peers = Peers(shaped(plan, name, role), role, command, Path(folder) / "run", tier, patience_s)
            try:
                act(peers)
            except Stalled as reason:
                stalled = reason
            finally:
                peers.close()
            yield from (judge(clause, peers, stalled) for clause in clauses)
        if stalled is not None and stalled.clause not in {clause.number for clause in clauses}:
            yield Result(Clause(stalled.clause, name, "it stalled"), BROKEN, str(stalled))
    for clause in () if only else unseen(role, clauses_of(role)):
        if clause.tier == "must" or tier == "should":
            yield Result(clause, NOT_VERIFIED, str(clause.check))


def shaped(plan: Plan, act: str, role: str = "") -> Plan:
    """The plan of an act: ``balance.in_order`` in the act ``order`` alone, ``log_prob`` asked for by the
    first learner in the act ``main`` and by on-policy learners, and a queue of two messages in the act
    ``unheard``; of a broker with limits. Off-policy learners bound no lag: which policies there are when a
    rollout of the played sampler is received is a matter of time.
    """
    plan = broker_acts.shaped(plan) if role == BROKER else plan
    name = experience_of(plan.learning.learners[0])
    asks = act == "main" or plan.learning.on_policy
    fields = set(plan.channels[name].fields) - {"log_prob"} | ({"log_prob"} if asks else set())
    channels = {**plan.channels, name: replace(plan.channels[name], fields=tuple(sorted(fields)))}
    if act == "unheard":
        channels[REPORT] = replace(plan.channels[REPORT], high_water_mark=2)
    balance = replace(plan.balance, in_order=act == "order")
    if role in LEARNERS and not plan.learning.on_policy:
        balance = replace(balance, max_policy_lag=None)
    return replace(plan, balance=balance, channels=channels)
