"""What a clause is, and how it is judged. Each module of checks ends with the table of its clauses."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spreeze_zmq.topology.source import shipped_folder

if TYPE_CHECKING:
    from spreeze_zmq.conform.peers import Peers

#: ``fast`` leaves out the acts that take long; ``should`` adds what a run can do without.
TIERS = ("fast", "must", "should")
KEPT, BROKEN, NOT_SEEN = "kept", "broken", "not seen"


class Broken(Exception):
    """A clause was broken; the message says what was seen."""


class NotSeen(Exception):
    """What a clause is about did not happen; the message says why."""


class Stalled(Exception):
    """The process did not do what an act waits for, which breaks ``clause``; the act ends with it."""

    def __init__(self, clause: str, seen: str) -> None:
        self.clause = clause
        super().__init__(seen)


@dataclass(frozen=True)
class Clause:
    """One numbered clause of PROTOCOL.md as it is checked in one act; its tier and words are the document's.

    Attributes:
        check: reads what was heard; returns what was seen, raises Broken or NotSeen. A text is the mark that
            an act comes to where the clause is kept.
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
        """Its first sentence."""
        return document()[self.number][1]


@functools.cache
def document() -> dict[str, tuple[str, str]]:
    """Tier and first sentence of each clause of PROTOCOL.md."""
    text, found = (shipped_folder("components") / "PROTOCOL.md").read_text(encoding="utf-8"), {}
    row = r"^- \*\*(\w+)\*\*(?: to \*\*(\w+)\*\*)? (must|should): (.*?)(?=^$|^- )"
    for first, last, tier, words in re.findall(row, text, re.MULTILINE | re.DOTALL):
        sentence = re.split(r"(?<=[a-z`\]])\. ", " ".join(words.split()).replace("`", ""))[0].rstrip(".")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            found[f"{first[0]}{number}"] = tier, sentence
    return found


@dataclass(frozen=True)
class Result:
    """What became of one clause; ``seen`` is one line."""

    clause: Clause
    verdict: str
    seen: str


def judge(about: Clause, peers: Peers, stalled: Stalled | None) -> Result:
    """Check one clause on what an act has heard."""
    if stalled is not None and stalled.clause == about.number:
        return Result(about, BROKEN, str(stalled))
    try:
        seen = peers.reached(about.check) if isinstance(about.check, str) else about.check(peers)
        return Result(about, KEPT, seen)
    except Broken as broken:
        if about.number != "M3" and peers.refusals:
            return Result(about, NOT_SEEN, "messages were refused, see M3")
        return Result(about, BROKEN, str(broken))
    except NotSeen as reason:
        return Result(about, NOT_SEEN, str(reason))


def expect(condition: object, seen: str) -> str:
    """What was seen; raises Broken with it unless the condition holds."""
    if not condition:
        raise Broken(seen)
    return seen
