"""The failures of a run as its broker records them: the first ones with their tracebacks, and all by kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import FailureRow

#: Most failures that are kept with their tracebacks.
FAILURES_KEPT = 100
#: Most kinds of failures that are kept; the one that has not come for the longest time leaves first.
KINDS_KEPT = 50
#: Most characters of a summary in a row.
LONGEST = 400

_NUMBER = re.compile(r"-?\d[\d.]*(e[-+]?\d+)?")


class FailureRecord:
    """Counts failures, and sorts them into kinds: those of one role whose summaries differ in numbers only.

    Attributes:
        first: the first failures: ``t_s``, ``name``, ``summary``, ``traceback``, ``survived``, and others.
        count: of all failures.
        kinds: the newest failure of each kind, the newest kind last.
    """

    def __init__(self) -> None:
        self.first: list[dict[str, Any]] = []
        self.count = 0
        self.kinds: dict[str, FailureRow] = {}

    def take(self, fields: Mapping[str, Any], now_s: float, *, survived: bool) -> None:
        """Record a failure; ``survived`` if its process reports it of its environment and goes on."""
        self.count += 1
        if len(self.first) < FAILURES_KEPT:
            self.first.append({"t_s": now_s, **fields, "survived": survived})
        summary = fields["summary"][:LONGEST]
        kind = f"{fields['name'].rpartition('-')[0]} {_NUMBER.sub('#', summary)}"
        before = self.kinds.pop(kind, None)
        self.kinds[kind] = {
            "kind": kind,
            "name": fields["name"],
            "summary": summary,
            "count": 1 + (before["count"] if before else 0),
            "t_s": round(now_s, 3),
            "survived": survived,
        }
        if len(self.kinds) > KINDS_KEPT:
            del self.kinds[next(iter(self.kinds))]

    def rows(self, most: int = KINDS_KEPT) -> list[FailureRow]:
        """The newest failures of the kinds that came last, at most ``most``, the newest last."""
        return list(self.kinds.values())[-most:]

    def summary(self) -> dict[str, Any]:
        """The part of summary.json."""
        return {"failures": self.first, "num_failures": self.count, "failure_kinds": self.rows()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-able state, for a restarted broker."""
        return {"first": self.first, "count": self.count, "kinds": self.kinds}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FailureRecord:
        """Inverse of :meth:`to_dict`."""
        record = cls()
        record.first, record.count, record.kinds = state["first"], state["count"], state["kinds"]
        return record
