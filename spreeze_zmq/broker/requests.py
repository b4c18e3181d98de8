"""What callbacks and other observers have asked the run for: a note, another value of an option, its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.allowance import Allowance
from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.base.schema import in_words
from spreeze_zmq.broker.rows import kept
from spreeze_zmq.plan import moves
from spreeze_zmq.plan.plan import Plan

STOP, SET, NOTE = WHATS = ("stop", "set", "note")
#: Most characters of a name and of a text, and rows that a status shows.
LONGEST_NAME, LONGEST_TEXT, ROWS = 80, 500, 8
#: Requests that are granted at once, and more in each second: each is a line of log and journal, and one that
#: sets an option a message to everybody and a new state file.
AT_ONCE, PER_S = 100, 1.0


@dataclass
class Request:
    """One that was granted, ``t_s`` seconds after the run's start.

    Attributes:
        who: asked, as it calls itself.
        what: ``stop``, ``set`` or ``note``.
        option: that was set; empty for the others.
        before: its value before, as the topology has it or another request had set it.
        value: its value since; 0 for the others.
        text: the note, or why the run is to stop.
        line: all of it, for people.
    """

    t_s: float
    who: str
    what: str
    option: str
    before: Any
    value: float
    text: str
    line: str


@dataclass
class Requests:
    """Those that were granted.

    Attributes:
        values: option -> the number that holds now, of those that were set.
        last: the last rows.
    """

    values: dict[str, float] = kept(dict, "turned")
    last: list[Request] = kept(list, "requests")
    _allowance: Allowance = field(default_factory=lambda: Allowance(AT_ONCE, PER_S))

    def take(self, plan: Plan, fields: Mapping[str, Any], now_s: float) -> Request:
        """Grant a request.

        Raises:
            WireError: ``bad_request``, with what may be asked for; ``too_many`` in a flood, of which the
                first one to stop is granted.
        """
        who, what = fields["who"][:LONGEST_NAME], fields["what"]
        option, value = fields.get("option", ""), fields.get("value", 0.0)
        text = fields.get("text", "")[:LONGEST_TEXT]
        if what not in WHATS:
            raise WireError("bad_request", f"{what!r:.60} of {who!r}, expected one of {', '.join(WHATS)}")
        if what == SET:
            try:
                value = moves.checked(plan, option, value)
            except InputError as error:
                raise WireError("bad_request", f"{who}: {error}") from None
        first_stop = what == STOP and all(row.what != STOP for row in self.last)
        if not self._allowance.takes(now_s) and not first_stop:
            raise WireError("too_many", f"{who}: more than {AT_ONCE} requests, and {PER_S:g} a second since")
        before = None
        if what == SET:
            before = self.values.get(option, moves.stated(plan, option))
            self.values[option] = value
        shown = {
            SET: f"set {option} {_shown(before)} -> {value:g}",
            STOP: f"asks to stop: {text}",
            NOTE: text,
        }
        row = Request(
            t_s=round(now_s, 3),
            who=who,
            what=what,
            option=option if what == SET else "",
            before=before,
            value=value if what == SET else 0.0,
            text="" if what == SET else text,
            line=f"{who}: {shown[what]}",
        )
        return self._enter(row)

    def note(self, who: str, text: str, now_s: float) -> Request:
        """Enter what the broker has to say itself."""
        return self._enter(Request(round(now_s, 3), who, NOTE, "", None, 0.0, text, f"{who}: {text}"))

    def _enter(self, row: Request) -> Request:
        self.last = [*self.last, row][-ROWS:]
        return row

    def replay_ratio(self, plan: Plan) -> float | None:
        """The target as it is now; none on data alone."""
        return None if plan.offline else self.values.get(moves.REPLAY_RATIO, plan.balance.replay_ratio)


def _shown(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else in_words(value)
