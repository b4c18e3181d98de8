"""What a process can have done since the run began: what it claims beyond that is not true."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.plan.roles import SAMPLER

#: Transitions a second that no process makes or takes, and cores that no machine has.
MOST_PER_S, MOST_CORES = 10_000_000, 4096
#: Cores of this machine: asked once, as the answer opens a file and each report needs it.
OWN_CORES = os.cpu_count() or MOST_CORES
#: Time for which a process may have worked before the broker began.
HEAD_START_S = 60.0


def most_transitions(age_s: float) -> int:
    """Transitions that no process can have pushed or received in a run of this age."""
    return int(MOST_PER_S * (max(0.0, age_s) + HEAD_START_S))


def most_cpu_s(age_s: float, *, is_elsewhere: bool) -> float:
    """CPU seconds that no process of a run of this age, on this machine or another, can have used."""
    cores = MOST_CORES if is_elsewhere else OWN_CORES
    return cores * (max(0.0, age_s) + HEAD_START_S)


def check_pushed(role: str, pushed: Mapping[str, int], most: int) -> None:
    """Refuse what no process of this role can have pushed.

    Raises:
        WireError: ``false_account``.
    """
    for learner, transitions in pushed.items():
        if transitions > (limit := most if role == SAMPLER else 0):
            what = f"a {role} cannot have pushed {transitions} transitions to {learner[:40]!r}"
            raise WireError("false_account", f"{what}, at most {limit}")


def check_failures(fields: Mapping[str, Any], known: int, most: int) -> None:
    """Refuse a ``failure`` that stands for none, or for more than there can have been beside the ``known``
    ones, of one in each transition. One that stands for itself is never too many.

    Raises:
        WireError: ``false_account``.
    """
    count, limit = fields.get("count", 1), max(1, most - known)
    if not 1 <= count <= limit:
        what = f"there cannot have been {count} more failures, expected 1 to {limit}"
        raise WireError("false_account", what)
