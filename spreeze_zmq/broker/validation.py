"""Validates the reports that reach the broker: who may send them, and how large their contents may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.learning_figures import GAUGES_KEPT
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.wire import KINDS, LARGEST, Message, odd_number
from spreeze_zmq.wire.header import MAX_ENTRIES

LAUNCHER = "launcher"
#: Most characters of a text, entries of a map or list, characters of a name: all must fit in one header.
LONGEST_TEXT, MOST_ENTRIES, LONGEST_NAME = 8000, 64, 80
LONGEST_WAIT = 100
_NUMBERS = frozenset((float, int))
#: What learners compute is no number to train on: a GPU multiplies 1e15 times in seconds, 1e21 in a week.
_MOST = dict.fromkeys(("critic_flops", "actor_flops", "limit_flops_per_s"), 1e30)
#: Maps of a report whose numbers are added up or divided.
_NUMERIC = ("clock_s", "counters", "policy_lag", "publication", "device")

#: Kind of report -> the roles, or the launcher, that alone send it.
_TELLERS = {
    **{
        kind: tuple(role.name for role in ROLES.values() if kind in role.reports)
        for kind in sorted({kind for role in ROLES.values() for kind in role.reports})
    },
    **dict.fromkeys(("exited", "workers", "machine", "turned_away", "stopping"), (LAUNCHER,)),
}


def validated(message: Message, plan: Plan) -> dict[str, Any]:
    """The known fields of a report, with long texts and maps cut and odd numbers left out.

    Raises:
        WireError: the sender is no process of the run or may not send this kind, or a number on which the
            run's end depends is not finite.
    """
    kind, sender, fields = message.kind, message.sender, message.fields
    _check_sender(message, plan)
    if kind in ("hello", "report", "bye"):
        _check_process(sender, fields, plan)
    most = MOST_ENTRIES if kind != "part" else MAX_ENTRIES  # a checkpoint without one of its files is none
    kept = {
        name: value if type(value := fields[name]) in _NUMBERS else _cut(value, most=most)
        for name in KINDS[kind].fields
        if name in fields and name != "taken"
    }
    if "gauges" in kept:
        kept["gauges"] = _cut(fields["gauges"], most=GAUGES_KEPT + 1)  # one more than are kept is told
    if "clock_s" in kept:
        kept |= {name: _finite(kept[name]) for name in _NUMERIC if name in kept}
        kept["cpu_s"] = kept["cpu_s"] if abs(kept["cpu_s"]) <= LARGEST else 0.0
        kept["waiting_for"] = kept.get("waiting_for", "")[:LONGEST_WAIT]
        if "taken" in fields:
            kept["taken"] = fields["taken"]
    if kind == "machine":
        kept |= {"processes": fields["processes"], "busy": _finite({"busy": fields["busy"]}).get("busy", 0.0)}
    if kind == "failure":
        kept["name"] = kept["name"][:LONGEST_NAME]
        if sender not in (LAUNCHER, fields["name"]):
            raise WireError("wrong_sender", f"failure of {kept['name']!r} came from {sender[:40]!r}")
    if "traceback" in kept:
        kept["traceback"] = fields["traceback"][-LONGEST_TEXT:]
    if kind == "evaluation":
        for name, value in kept.items():
            if isinstance(value, int | float) and not abs(value) <= LARGEST:
                raise WireError("not_finite", f"{kind}.{name} is {value}, expected a finite number")
        kept |= {"info": _finite(kept["info"])} if "info" in kept else {}
    if kind == "episodes" and (odd := odd_number(message.arrays["returns"])):
        raise WireError("not_finite", f"episodes.returns holds {odd}")
    if "role" in kept and kept["role"] not in plan.components:
        raise WireError("wrong_sender", f"{kind}.role is {kept['role']!r:.60}, expected a role of this run")
    if kind == "workers" and kept["count"] > (allowed := plan.components[kept["role"]].count.maximum):
        raise WireError("wrong_field_type", f"workers.count is {kept['count']}, expected at most {allowed}")
    return kept


def names_of(role: str, plan: Plan) -> set[str]:
    """The names that the processes of a role may have, up to the topology's largest count."""
    return {f"{role}-{index}" for index in range(plan.components[role].count.maximum)}


def _check_sender(message: Message, plan: Plan) -> None:
    """Refuse a kind that PROTOCOL.md reserves for other senders, and another launcher than the run's."""
    kind, sender = message.kind, message.sender
    if sender == LAUNCHER and plan.launcher not in (0, message.incarnation):
        what = (
            f"{kind} came from a launcher of incarnation {message.incarnation}, which did not start this run"
        )
        raise WireError("wrong_sender", what)
    role = sender if sender == LAUNCHER else sender.rpartition("-")[0]
    tellers = [name for name in _TELLERS.get(kind, ()) if name == LAUNCHER or name in plan.components]
    if tellers and role not in tellers:
        expected = " or ".join(tellers)
        raise WireError("wrong_sender", f"{kind} came from {sender[:40]!r}, expected it from {expected}")
    if kind in ("evaluation", "part") and sender not in names_of(role, plan):
        last = plan.components[role].count.maximum - 1
        raise WireError(
            "wrong_sender", f"{kind} came from {sender[:40]!r}, expected {role}-0 to {role}-{last}"
        )


def _check_process(sender: str, fields: Mapping[str, Any], plan: Plan) -> None:
    """Refuse a process that is not ``ROLE-INDEX`` of the run, or reports under another name than its own."""
    role, name = fields["role"], fields["name"]
    if name != sender:
        raise WireError("wrong_sender", f"its name is {name!r:.60}, the header's sender {sender!r:.60}")
    if role not in plan.components or not _is_numbered(sender, role):
        roles = ", ".join(plan.components)
        came = f"{sender!r:.60} of role {role!r:.60}"
        raise WireError("wrong_sender", f"{came}, expected ROLE-INDEX of {roles}")


@lru_cache(4096)
def _is_numbered(name: str, role: str) -> bool:
    """Whether a name is ``ROLE-INDEX``."""
    return re.fullmatch(rf"{re.escape(role)}-\d{{1,6}}", name, re.ASCII) is not None


def _finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a map that are finite and small enough to be added up."""
    return {
        name: value for name, value in numbers.items() if abs(value) <= _MOST.get(name, LARGEST)
    }  # false of NaN


def _cut(value: Any, depth: int = 0, most: int = MOST_ENTRIES) -> Any:
    kind = type(value)
    if kind in _NUMBERS:
        return value
    if kind is str:
        return value[: LONGEST_TEXT if depth == 0 else 4 * LONGEST_NAME]
    if depth > 2:
        return None
    if kind is dict:
        entries = islice(value.items(), most)
        return {
            name[:LONGEST_NAME]: item if type(item) in _NUMBERS else _cut(item, depth + 1)
            for name, item in entries
        }
    if kind is list:
        return [_cut(item, depth + 1) for item in value[:MOST_ENTRIES]]
    return value if kind is not bytes else None
