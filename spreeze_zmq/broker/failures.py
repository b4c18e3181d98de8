"""Failures of a run as its broker records them: by kind, and the first ones with their tracebacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.errors import kind_of
from spreeze_zmq.plan.roles import SAMPLER

#: Most failures that are kept with their tracebacks.
FAILURES_KEPT = 100
#: Most kinds of failures that are kept; the one that has not come for the longest time leaves first.
KINDS_KEPT = 50
#: Most characters of a summary in a row.
LONGEST = 400


@dataclass
class WentBack:
    """A learner that returned to a checkpoint, ``t_s`` seconds after the run's start, because its loss or
    weights were not finite after ``updates``; ``why`` is the learner's message.
    """

    t_s: float
    learner: str
    env_steps: int
    updates: int
    checkpoint: str
    why: str


@dataclass
class FailureRow:
    """Failures of one role whose summaries differ in numbers only: their ``count``, the newest one's process,
    summary and time. ``survived``: their processes report them of their environments, and go on.
    """

    kind: str
    name: str
    summary: str
    count: int
    t_s: float
    survived: bool


@dataclass
class FailureRecord:
    """Counts failures, and sorts them into kinds: those of one role whose summaries differ in numbers only.

    Attributes:
        first: the first failures: ``t_s``, ``name``, ``summary``, ``traceback``, ``survived``, and others.
        count: of all failures.
        survived: of those of environments, whose processes went on; ``of_samplers``, of samplers among these.
        kinds: the newest failure of each kind, the newest kind last.
    """

    first: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    survived: int = 0
    of_samplers: int = 0
    kinds: dict[str, FailureRow] = field(default_factory=dict)

    def take(self, fields: Mapping[str, Any], now_s: float, *, survived: bool) -> None:
        """Record a failure, or a ``count`` of them alike; ``survived`` if its process reports it of its
        environment and goes on.
        """
        new = fields.get("count", 1)
        self.count += new
        role = fields["name"].rpartition("-")[0]
        self.survived += new * survived
        self.of_samplers += new * (survived and role == SAMPLER)
        if len(self.first) < FAILURES_KEPT:
            self.first.append({"t_s": now_s, **fields, "survived": survived})
        name, summary = fields["name"], fields["summary"][:LONGEST]
        kind = f"{role} {kind_of(summary)}"
        before = self.kinds.pop(kind, None)
        count = new + (before.count if before else 0)
        self.kinds[kind] = FailureRow(kind, name, summary, count, round(now_s, 3), survived)
        if len(self.kinds) > KINDS_KEPT:
            del self.kinds[next(iter(self.kinds))]

    @property
    def of_processes(self) -> int:
        """Number of those that a process did not survive, or of a learner that went back."""
        return self.count - self.survived

    def rows(self, most: int = KINDS_KEPT) -> list[FailureRow]:
        """The newest failures of the kinds that came last, at most ``most``, the newest last."""
        return list(self.kinds.values())[-most:]
