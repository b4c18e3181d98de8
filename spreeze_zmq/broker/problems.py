"""Refused messages as the broker records them: who sent what, which rule it broke, and how often."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spreeze_zmq.base.endpoints import BAD_KEYS
from spreeze_zmq.broker.figures import ProcessRecord
from spreeze_zmq.broker.rows import inner
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER
from spreeze_zmq.wire.channels.refusals import NO_MISTAKES
from spreeze_zmq.wire.fields import MAX_COUNT

#: Most rows that are kept of mistakes, of messages that became too old, and of missing ones, so that a peer
#: that invents names cannot fill the memory.
MOST_ROWS = 64
#: Lives of a process whose counts are told apart: of the one before, something may come late.
LIVES_KEPT = 2
#: Kinds that a process exists to send. It is stuck if this many of one kind are refused over this time and
#: none is accepted.
VITAL = ("hello", "report", "rollout", "policy", "critic")
STUCK_AFTER, STUCK_AFTER_S = 3, 1.5
#: The same for a process of which nothing is known yet: it may be starting, and another use its name.
UNKNOWN_AFTER_S = 10.0
#: The word of a message that came where none of its kind travels; others may come where they should.
ASTRAY = "wrong_kind"
#: The word of a message that another than the process of its name may have sent.
NOT_ITS_OWN = "wrong_sender"
#: A process is named after this time without a report.
SILENT_S = 3.0
#: Words for messages that never came, and what is said of them.
NO_HELLO, NO_REPORT = "no_hello", "no_report"
MISSING = {
    NO_HELLO: "it pushes rollouts, but no hello has come from it: send one when all is set up",
    NO_REPORT: f"no report has come for {SILENT_S:g} s, expected two a second, also while it waits",
}
#: Words that keep nobody from being heard.
NEVER_STUCK = (*NO_MISTAKES, *MISSING, ASTRAY, NOT_ITS_OWN)


@dataclass
class Refused:
    """Messages of one sender and kind that one process refuses for one reason.

    Attributes:
        taker: the process that refuses them.
        sender: as the messages name it; empty if unreadable.
        kind: of the messages; empty if unreadable.
        word: the rule that they break.
        count: number of refused messages, over all incarnations of the taker.
        first: the first example: what came, what was expected.
        stuck: whether no message of the kind gets through, as of :meth:`row`.
        line: a sentence with all that, as of :meth:`row`.
        shown: the count at the last display; 0 before.
        patience_s: for so long none must have been accepted; infinite where that keeps nobody from his work.
    """

    taker: str
    sender: str
    kind: str
    word: str
    count: int = 0
    first: str = ""
    stuck: bool = False
    line: str = ""
    shown: int = inner(int)
    _reported: dict[int, int] = inner(dict)
    _accepted: int = inner(lambda: -1)
    _count_since: int = inner(int)
    _since_s: float = inner(float)
    _last_s: float = inner(float)
    patience_s: float = inner(lambda: STUCK_AFTER_S)

    def take(self, count: int, accepted: int, now_s: float, life: int) -> None:
        """Record the cumulative counts of a life of the taker: refused, and accepted from the same sender and
        kind.
        """
        before = self._reported.pop(life, 0)
        self._reported[life] = count
        if len(self._reported) > LIVES_KEPT:
            del self._reported[next(iter(self._reported))]
        new = count - before if count >= before else count  # a restarted taker counts from 0
        if accepted != self._accepted:
            self._accepted, self._count_since, self._since_s = accepted, self.count, now_s
        self.count = min(self.count + new, MAX_COUNT - 1)
        self._last_s = now_s if new else self._last_s

    def begin(self, now_s: float) -> None:
        """A new life of the sender begins, which may send what is accepted: its own messages count."""
        self._count_since, self._since_s = self.count, now_s

    def row(self, now_s: float) -> Refused:
        """Itself, with ``stuck`` and ``line`` as they are now."""
        self.stuck = self._is_stuck(now_s)
        self.line = self._line()
        return self

    def _is_stuck(self, now_s: float) -> bool:
        """Whether no message of this kind gets through. One accepted message is enough to say no: another
        process may send under a known name.
        """
        if self._accepted or self.kind not in VITAL or self.word in NEVER_STUCK:
            return False
        if self.kind == "hello":  # it is sent once
            return now_s - self._since_s >= self.patience_s
        lasted_s = self._last_s - self._since_s
        return self.count - self._count_since >= STUCK_AFTER and lasted_s >= self.patience_s

    def _line(self) -> str:
        """One line: sender, refusing process, count, rule and first example."""
        sender = self.sender or "an unknown sender"
        if self.word in MISSING:
            return f"{sender}: {self.first}"
        if self.word == BAD_KEYS:
            failed = f"{self.count:,} handshake{'s' * (self.count != 1)} failed"
            return f"{self.taker}: {failed}: {self.word}: {self.first}"
        what = f"{self.count:,} {self.kind or 'unreadable'} message{'s' * (self.count != 1)}"
        never = "; none gets through" if self.stuck else ""
        return f"{sender}: {self.taker} refused {what}: {self.word}: {self.first}{never}"


def patience_s(
    plan: Plan, processes: Mapping[str, ProcessRecord], sender: str, kind: str, taker: str
) -> float:
    """How long all messages of a kind must have been refused before their sender is stuck: for ever where
    it does not send that kind there, or is not known to have. Another may use its name.
    """
    role, process = sender.rpartition("-")[0], processes.get(sender)
    if not plan.carries(kind, role, taker.rpartition("-")[0]):
        return math.inf
    if kind == "hello" and process is not None:  # it reports: its start has a deadline
        return math.inf
    if kind == "rollout":
        return STUCK_AFTER_S if process is not None and process.pushed else math.inf
    return STUCK_AFTER_S if process is not None or kind in ("policy", "critic") else UNKNOWN_AFTER_S


class RefusalRecord:
    """All refusals of a run.

    Args:
        patience_s: for a sender, a kind and a taker, the ``patience_s`` of their refusals now.
    """

    def __init__(self, patience_s: Callable[[str, str, str], float] = lambda *about: STUCK_AFTER_S) -> None:
        self._patience_s = patience_s
        self._refused: dict[tuple[str, str, str, str], Refused] = {}

    def take(
        self, taker: str, rows: Iterable[Mapping[str, Any]], now_s: float, life: int = 0
    ) -> list[Refused]:
        """Record the ``refused`` rows of a report at ``now_s`` seconds, by an incarnation of the taker.

        Returns:
            The refusals to display: each at its first message, and again at each tenfold count.
        """
        news = []
        for (sender, kind, word), same in _grouped(rows).items():
            key = (taker, sender, kind, word)
            if key not in self._refused and not self._has_room(word):
                continue
            refused = self._refused.setdefault(key, Refused(*key, first=str(same[0].get("first", ""))[:300]))
            count, accepted = (sum(_count(row.get(name)) for row in same) for name in ("count", "good"))
            refused.take(count, accepted, now_s, life)
            if refused.count >= max(1, 10 * refused.shown):
                refused.shown = refused.count
                news.append(refused)
        return news

    def begin(self, sender: str, now_s: float) -> None:
        """Note that a new life of a sender begins."""
        for one in self._refused.values():
            if one.sender == sender:
                one.begin(now_s)

    def _has_room(self, word: str) -> bool:
        """Whether there is a place for one more row: a thousand processes that are silent, or whose rollouts
        come too late, leave the places of mistakes.
        """
        return sum(_sort(known) == _sort(word) for *_, known in self._refused) < MOST_ROWS

    def miss(self, sender: str, word: str, now_s: float) -> list[Refused]:
        """Record, once, that the broker expects a message of a process; returns it for display."""
        taker = f"{BROKER}-0"
        row = {"sender": sender, "word": word, "first": MISSING[word], "count": 1}
        known = (taker, sender, "", word) in self._refused
        return [] if known else self.take(taker, [row], now_s)

    def state(self) -> list[dict[str, Any]]:
        """JSON-able rows of all refusals, with what the takers have reported."""
        return [
            {**asdict(one), "_reported": [*one._reported.items()], "patience_s": STUCK_AFTER_S}
            for one in self._refused.values()
        ]

    def restore(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Inverse of :meth:`state`."""
        for row in state:
            one = Refused(**{**row, "_reported": dict(row["_reported"])})
            self._refused[one.taker, one.sender, one.kind, one.word] = one

    @property
    def mistakes(self) -> int:
        """Number of messages that broke a rule; what never came is none."""
        counts = (one.count for one in self._refused.values() if one.word not in (*NO_MISTAKES, *MISSING))
        return min(sum(counts), MAX_COUNT - 1)

    def rows(self, now_s: float, most: int = 2 * MOST_ROWS) -> list[Refused]:
        """At most ``most`` rows: stuck senders first, then mistakes before what is none, then by count."""
        for one in self._refused.values():
            one.patience_s = self._patience_s(one.sender, one.kind, one.taker)
        rows = [one.row(now_s) for one in self._refused.values()]
        return sorted(rows, key=lambda row: (not row.stuck, row.word in NO_MISTAKES, -row.count))[:most]


def _sort(word: str) -> tuple[bool, bool]:
    """Rows of one sort have places of their own."""
    return word in MISSING, word in NO_MISTAKES


def _grouped(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[Mapping[str, Any]]]:
    """Rows by sender, kind and word: each channel of the taker has its own row for the same refusal."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        sender, kind, word = (str(row.get(name, ""))[:40] for name in ("sender", "kind", "word"))
        groups.setdefault((sender, kind, word), []).append(row)
    return groups


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
