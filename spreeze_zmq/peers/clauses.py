"""What a clause is, how it is judged, and the checks of several roles. Each module of checks ends with
a table of its clauses.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.peers.peers import Heard, NotSeen, Peers, Stalled

#: Longest time between two reports; PROTOCOL.md asks for half a second.
REPORT_S = 1.6
KEPT, BROKEN, NOT_VERIFIED = "kept", "broken", "not verified"


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
            return Result(clause, NOT_VERIFIED, "messages were refused, see M3")
        return Result(clause, BROKEN, str(broken))
    except NotSeen as reason:
        return Result(clause, NOT_VERIFIED, str(reason))


def expect(condition: object, seen: str) -> str:
    """Return ``seen``; raise Broken with it if the condition is false."""
    if not condition:
        raise Broken(seen)
    return seen


# --- checks of several roles


def exits_with_0(peers: Peers) -> str:
    """L5 and L6: the process that was asked to stop exits with code 0."""
    code, took_s, life = peers.note("exit")
    expect(code == 0, life.ending())
    return f"exit code 0 after {took_s:.1f} s"


def exits_with_2(peers: Peers, name: str) -> str:
    """A6 and L10: the process noted with its exit code under a name ends with code 2, and says why."""
    life, code = peers.note(name)
    expect(code == 2, "it goes on" if code is None else life.ending())
    words = life.words()
    return expect(words, f"exit code 2: {words[-1][:160] if words else 'and no word why'}")


def repeats_its_latest(peers: Peers, kind: str) -> str:
    """C10: who came late was sent the latest message of a kind again, with the number that it had."""
    found = [message for message in peers.note("late") if message.kind == kind]
    expect(found, f"no {kind} is repeated for who comes late")
    had = {(m.incarnation, m.sequence) for m in peers.between(None, None, kind) if not m.repeat}
    new = [m.sequence for m in found if (m.incarnation, m.sequence) not in had]
    return expect(not new, f"repeated under another number: {new[:3]}" if new else "it is repeated")


def another_incarnation(peers: Peers) -> str:
    """L9: the life after a SIGKILL takes the name, with another incarnation."""
    first, second = peers.note("lives")
    return expect(first != second, f"the incarnations are {first} and {second}")


def leaves_no_child(peers: Peers) -> str:
    """L14: of the processes that it had started none outlives it."""
    left, started = peers.note("left"), peers.note("children")
    return expect(not left, f"it left {', '.join(left)}" if left else f"of {started} children none is left")


def no_gap(peers: Peers, start: str, stop: str) -> str:
    """H2 and H3: no gap above ``REPORT_S`` between the reports from one mark to another."""
    return regular(peers, peers.times(start, stop, "report"), "reports")


def regular(peers: Peers, found: Sequence[Heard], what: str) -> str:
    """No gap above ``REPORT_S`` between messages, without the time in which nobody here was listening."""
    expect(len(found) >= 2, f"{len(found)} {what}")
    times = pairwise(heard.at_s for heard in found)
    longest_s = max(after - before - peers.paused_s(before, after) for before, after in times)
    return expect(longest_s <= REPORT_S, f"{len(found)} {what}, at most {longest_s:.1f} s apart")


def names_its_peer(peers: Peers, start: str, stop: str, names: Iterable[str]) -> str:
    """H6: a report between two marks says that it waits for one of these roles."""
    words = [message.fields.get("waiting_for", "") for message in peers.between(start, stop, "report")]
    if not words:
        raise NotSeen("no report came, see H3")
    named = [text for text in words if any(name in text for name in names)]
    return expect(named, f"waiting_for is {(named or words)[-1]!r}")
