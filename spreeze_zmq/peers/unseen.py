"""Which clauses are for a role, and why no act judges some of them."""

from __future__ import annotations

from collections.abc import Iterable

from spreeze_zmq.peers.clauses import Clause, document
from spreeze_zmq.plan.roles import (
    ACTOR_LEARNER,
    BROKER,
    CRITIC_LEARNER,
    EVALUATOR,
    LEARNERS,
    SAMPLER,
    VISUALIZER,
)

CONNECTING = (SAMPLER, EVALUATOR, *LEARNERS, VISUALIZER)
EVERY = (*CONNECTING, BROKER)
#: The roles that a clause is for, by its number or else by its letter.
FOR = {
    **dict.fromkeys(("L", "C", "M"), EVERY),
    **dict.fromkeys(("L6", "L7", "C1", "C2", "C5", "C6", "C8", "H"), CONNECTING),
    **dict.fromkeys(("C9", "C10"), (*LEARNERS, BROKER)),
    **dict.fromkeys(("X", "A", "C4", "H5", "H9"), (SAMPLER,)),
    **dict.fromkeys(("E", "F"), (EVALUATOR,)),
    **{"T": LEARNERS, "T1": (CRITIC_LEARNER,), "T6": (ACTOR_LEARNER,)},
    **{"V": (VISUALIZER,), "B": (BROKER,)},
}
#: What is known of a clause that no act judges.
WHY = {
    "L11": "not seen from outside, but for the codes that L3, L5, L10 and A6 name",
    "C8": "not seen from outside: only now and then something is lost without it",
    "M1": "judged with M3",
    "F1": "not seen from outside: a reader would have to come in between",
    "H10": "judged of samplers alone",
}


def is_for(number: str, role: str) -> bool:
    """Whether a clause is one of a role's."""
    return role in FOR.get(number, FOR[number[0]])


def unseen(role: str, checked: Iterable[Clause]) -> tuple[Clause, ...]:
    """The clauses of a role that are not among those checked; the check of each is why, in one line."""
    seen = {clause.number for clause in checked}
    return tuple(
        Clause(number, "", WHY.get(number, "no act shows it"))
        for number in document()
        if number not in seen and is_for(number, role)
    )
