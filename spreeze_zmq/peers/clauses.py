"""What a clause is and how it is judged. Each module of checks ends with the table of its clauses."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.peers.peers import NotSeen, Peers, Stalled

KEPT, BROKEN, NOT_SEEN = "kept", "broken", "not seen"


class Broken(Exception):
    """A clause is broken; the message says what was seen."""


@dataclass(frozen=True)
class Clause:
    """One numbered clause of PROTOCOL.md and its check in one act; PROTOCOL.md gives its tier and words.

    Attributes:
        act: the scripted scene whose record is checked.
        check: takes what was heard in the act and returns what was seen, in one line; raises Broken or
            NotSeen. A text is a mark instead: the clause is kept if the act reached it.
    """

    number: str
    act: str
    check: Callable[[Peers], str] | str

    @property
    def tier(self) -> str:
        """``must`` or ``should``."""
        return document()[self.number][0]

    @property
    def expected(self) -> str:
        """The clause's first sentence."""
        return document()[self.number][1]


@functools.cache
def document() -> dict[str, tuple[str, str]]:
    """Number -> tier and first sentence, of each clause of PROTOCOL.md."""
    text, clauses = (shipped_folder("components") / "PROTOCOL.md").read_text(encoding="utf-8"), {}
    row = r"^- \*\*(\w+)\*\*(?: to \*\*(\w+)\*\*)? (must|should): (.*?)(?=^$|^- )"
    for first, last, tier, words in re.findall(row, text, re.MULTILINE | re.DOTALL):
        sentence = re.split(r"(?<=[a-z`\]])\. ", " ".join(words.split()).replace("`", ""))[0].rstrip(".")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            clauses[f"{first[0]}{number}"] = tier, sentence
    return clauses


@dataclass(frozen=True)
class Result:
    """The verdict on one clause; ``seen`` is one line."""

    clause: Clause
    verdict: str
    seen: str


def judge(clause: Clause, peers: Peers, stalled: Stalled | None) -> Result:
    """Check one clause against the record of its act, which may have ended early as ``stalled`` says."""
    if stalled is not None and stalled.clause == clause.number:
        return Result(clause, BROKEN, str(stalled))
    try:
        seen = peers.reached(clause.check) if isinstance(clause.check, str) else clause.check(peers)
        return Result(clause, KEPT, seen)
    except Broken as broken:
        if clause.number != "M3" and peers.refusals:
            return Result(clause, NOT_SEEN, "messages were refused, see M3")
        return Result(clause, BROKEN, str(broken))
    except NotSeen as reason:
        return Result(clause, NOT_SEEN, str(reason))


def expect(condition: object, seen: str) -> str:
    """Return ``seen``; raise Broken with it if the condition is false."""
    if not condition:
        raise Broken(seen)
    return seen
