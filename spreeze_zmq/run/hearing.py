"""What the broker believes of a message: who may send it, and no more of it than a record can hold."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from spreeze_zmq.errors import WireError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.wire import KINDS, LARGEST, Message, odd_number

LAUNCHER = "launcher"
#: Characters of a text, entries of a map or list, characters of their names: all must fit in one header.
LONGEST_TEXT, MOST_ENTRIES, LONGEST_NAME = 8000, 64, 80
LONGEST_WAIT = 100
#: Maps of a report whose numbers are reckoned with.
_RECKONED = ("clock_s", "counters", "policy_lag", "publication", "device")


def believed(message: Message, plan: Plan) -> dict[str, Any]:
    """The known fields of a report that may come from its sender; texts and maps shortened.

    Raises:
        WireError: the sender is no process of the run or not one that sends this kind, or a number on which
            the run's end depends is not finite.
    """
    kind, sender, fields = message.kind, message.sender, message.fields
    _check_sender(kind, sender, plan)
    if kind in ("hello", "report", "bye"):
        _check_process(sender, fields, plan)
    found = {name: _cut(fields[name]) for name in KINDS[kind].fields if name in fields}
    if "clock_s" in found:
        found |= {name: _reckonable(fields[name]) for name in _RECKONED if name in fields}
        found["cpu_s"] = found["cpu_s"] if abs(found["cpu_s"]) <= LARGEST else 0.0
        found["waiting_for"] = found.get("waiting_for", "")[:LONGEST_WAIT]
        if "taken" in fields:
            found["taken"] = fields["taken"]
    if "traceback" in found:
        found["traceback"] = fields["traceback"][-LONGEST_TEXT:]
    if kind == "evaluation":
        _check_numbers(kind, found)
        found |= {"info": _reckonable(found["info"])} if "info" in found else {}
    if kind == "episodes" and (odd := odd_number(message.arrays["returns"])):
        raise WireError("not_finite", f"episodes.returns holds {odd}")
    if "role" in found and found["role"] not in plan.components:
        raise WireError("wrong_sender", f"{kind}.role is {found['role']!r:.60}, expected a role of this run")
    return found


def _check_sender(kind: str, sender: str, plan: Plan) -> None:
    """Only those send a kind of whom PROTOCOL.md says so."""
    senders: dict[str, Collection[str]] = {
        "evaluation": (EVALUATOR,),
        "episodes": (SAMPLER,),
        "part": plan.learning.learners,
        **dict.fromkeys(("exited", "workers", "stopping"), (LAUNCHER,)),
    }
    role = sender if sender == LAUNCHER else sender.rpartition("-")[0]
    if kind in senders and role not in senders[kind]:
        expected = " or ".join(senders[kind])
        raise WireError("wrong_sender", f"{kind} came from {sender[:40]!r}, expected it from {expected}")
    if kind in ("evaluation", "part") and sender not in names_of(role, plan):
        last = plan.components[role].count.maximum - 1
        raise WireError(
            "wrong_sender", f"{kind} came from {sender[:40]!r}, expected {role}-0 to {role}-{last}"
        )


def names_of(role: str, plan: Plan) -> set[str]:
    """The names that processes of a role may have whose word counts for the run."""
    return {f"{role}-{index}" for index in range(plan.components[role].count.maximum)}


def _check_process(sender: str, fields: Mapping[str, Any], plan: Plan) -> None:
    role, name = fields["role"], fields["name"]
    if name != sender:
        raise WireError("wrong_sender", f"its name is {name!r:.60}, the header's sender {sender!r:.60}")
    if role not in plan.components or not re.fullmatch(rf"{re.escape(role)}-\d{{1,6}}", sender, re.ASCII):
        roles = ", ".join(plan.components)
        came = f"{sender!r:.60} of role {role!r:.60}"
        raise WireError("wrong_sender", f"{came}, expected ROLE-INDEX of {roles}")


def _check_numbers(kind: str, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, int | float) and not abs(value) <= LARGEST:
            raise WireError("not_finite", f"{kind}.{name} is {value}, expected a finite number")


def _reckonable(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers of a size that sums and shares can be made of."""
    short: dict[str, float] = _cut(numbers)
    return {name: value for name, value in short.items() if math.isfinite(value) and abs(value) <= LARGEST}


def _cut(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value[: LONGEST_TEXT if depth == 0 else 4 * LONGEST_NAME]
    if depth > 2:
        return None
    if isinstance(value, Mapping):
        return {name[:LONGEST_NAME]: _cut(value[name], depth + 1) for name in list(value)[:MOST_ENTRIES]}
    if isinstance(value, list):
        return [_cut(item, depth + 1) for item in value[:MOST_ENTRIES]]
    return value if not isinstance(value, bytes) else None
