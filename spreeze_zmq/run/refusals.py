"""The broker's record of refused messages: who sent what, which rule it broke, how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq.plan.keys import BAD_KEYS

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import RefusalRow

#: Rows that are kept; a peer that invents names fills no memory.
MOST_ROWS = 64
#: Rows in each status.
SHOWN_ROWS = 8
#: Kinds that a process exists for: it is stuck after this number of refusals of one kind, with none taken.
VITAL = ("hello", "report", "rollout", "policy", "critic")
STUCK_AFTER, STUCK_AFTER_S = 3, 1.5
#: A message dropped for its age is no mistake of its sender.
NO_MISTAKES = ("stale",)
#: Words for messages that never came.
MISSING = NO_HELLO, NO_REPORT = "no_hello", "no_report"


@dataclass
class Refused:
    """Messages of one sender and kind that one process refuses for one reason.

    Attributes:
        taker: the process that refuses.
        sender: as the messages name it; empty where that could not be read.
        kind: of the messages; likewise.
        word: for the rule.
        first: the first example: what came, what was expected.
        count: of them, over all lives of the taker.
        shown: the count at which it was shown last; 0 before.
    """

    taker: str
    sender: str
    kind: str
    word: str
    first: str
    count: int = 0
    shown: int = 0
    _of_life: int = 0
    _good: int = -1
    _count_since: int = 0
    _since_s: float = 0.0
    _last_s: float = 0.0

    def take(self, count: int, good: int, now_s: float) -> None:
        """Enter the counts of the taker's present life: refused, and taken of the same sender and kind."""
        before, self._of_life = self._of_life, count
        new = count - before if count >= before else count
        if good != self._good:
            self._good, self._count_since, self._since_s = good, self.count, now_s
        self.count += new
        self._last_s = now_s if new else self._last_s

    def stuck(self, now_s: float) -> bool:
        """Whether no message of the sender was ever taken; others may send in the name of a known one."""
        if self._good or self.kind not in VITAL or self.word in NO_MISTAKES + MISSING:
            return False
        if self.kind == "hello":  # it comes once
            return now_s - self._since_s >= STUCK_AFTER_S
        lasted_s = self._last_s - self._since_s
        return self.count - self._count_since >= STUCK_AFTER and lasted_s >= STUCK_AFTER_S

    def row(self, now_s: float) -> RefusalRow:
        """For the status and the summary."""
        return {
            "taker": self.taker,
            "sender": self.sender,
            "kind": self.kind,
            "word": self.word,
            "count": self.count,
            "first": self.first,
            "stuck": self.stuck(now_s),
            "line": self.line(now_s),
        }

    def line(self, now_s: float) -> str:
        """One line: who refuses what of whom, how often, and why."""
        sender = self.sender or "an unknown sender"
        if self.word in MISSING:
            return f"{sender}: {self.first}"
        if self.word == BAD_KEYS:
            failed = f"{self.count:,} handshake{'s' * (self.count != 1)} failed"
            return f"{self.taker}: {failed}: {self.word}: {self.first}"
        what = f"{self.count:,} {self.kind or 'unreadable'} message{'s' * (self.count != 1)}"
        never = "; none gets through" if self.stuck(now_s) else ""
        return f"{sender}: {self.taker} refused {what}: {self.word}: {self.first}{never}"


class RefusalRecord:
    """All refusals of a run."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str, str, str], Refused] = {}

    def take(self, taker: str, rows: Iterable[Mapping[str, Any]], now_s: float) -> list[Refused]:
        """Enter the ``refused`` of a report at a time in seconds; returns what should be shown: the first of
        each, then each tenfold count.
        """
        news = []
        for (sender, kind, word), same in _grouped(rows).items():
            key = (taker, sender, kind, word)
            if key not in self._refused and len(self._refused) >= MOST_ROWS:
                continue
            refused = self._refused.setdefault(key, Refused(*key, first=str(same[0].get("first", ""))[:300]))
            count, good = (sum(_count(row.get(name)) for row in same) for name in ("count", "good"))
            refused.take(count, good, now_s)
            if refused.count >= max(1, 10 * refused.shown):
                refused.shown = refused.count
                news.append(refused)
        return news

    def miss(self, taker: str, sender: str, word: str, first: str, now_s: float) -> list[Refused]:
        """Enter once that an expected message has not come from a process."""
        key = (taker, sender, "", word)
        known = self._refused.get(key)
        row = {"sender": sender, "word": word, "first": first, "count": 1}
        return [] if known else self.take(taker, [row], now_s)

    @property
    def mistakes(self) -> int:
        """Messages that broke a rule."""
        return sum(one.count for one in self._refused.values() if one.word not in NO_MISTAKES)

    def rows(self, now_s: float, most: int = MOST_ROWS) -> list[RefusalRow]:
        """Rows, those that are stuck and then the most frequent first."""
        rows = [one.row(now_s) for one in self._refused.values()]
        return sorted(rows, key=lambda row: (not row["stuck"], -row["count"]))[:most]


def _grouped(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[Mapping[str, Any]]]:
    """Rows by sender, kind and word: each channel of a process has its own."""
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        sender, kind, word = (str(row.get(name, ""))[:40] for name in ("sender", "kind", "word"))
        found.setdefault((sender, kind, word), []).append(row)
    return found


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
