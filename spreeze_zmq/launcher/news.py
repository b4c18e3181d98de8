"""What is new in each status of a run's broker, as lines for its user."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spreeze_zmq.base.allowance import Allowance
from spreeze_zmq.base.journal import time_of
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.words import failure_rows, finding_line, findings, mistakes

#: Most kinds of failures that are noted as they come.
MOST_KINDS = 20
#: Lines of one sort that are remembered as noted: more than a status has.
MOST_REMEMBERED = 200
#: After a time in which the launcher stood still, the statuses that have piled up are read by then.
READ_S = 1.0
#: Lines of one sort that are shown as they come, and how soon there may be another one.
LINES_AT_ONCE, LINES_PER_S = 20, 0.1


class Sparing:
    """Lines of one sort that anybody may cause: some at once, later few.

    Args:
        rest: the line that stands for those that are left out.
    """

    def __init__(self, rest: str) -> None:
        self._rest, self._left_out = rest, False
        self._known: deque[object] = deque(maxlen=MOST_REMEMBERED)
        self._allowance = Allowance(LINES_AT_ONCE, LINES_PER_S)

    def of(self, rows: Iterable[tuple[object, str]], now_s: float) -> list[str]:
        """The lines to show of those that a status has now, each behind what tells it from others."""
        shown = []
        if self._left_out and self._allowance.takes(now_s):
            self._left_out = False
            shown.append(self._rest)
        for row, line in rows:
            if row in self._known:
                continue
            self._known.append(row)
            if self._left_out or not self._allowance.takes(now_s):
                self._left_out = True
            else:
                shown.append(line)
        return shown


class News:
    """The lines of each status that are new to the user.

    Args:
        folder: the run's folder.
        clock: monotonic seconds.
    """

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs, self._clock = folder.logs, clock
        self._failed: set[str] = set()
        self._refused: dict[tuple[str, ...], float] = {}
        place = f"are in {folder.shown}/{folder.metrics.name}"
        self._returns = Sparing(f"further returns to a checkpoint {place}")
        self._requests = Sparing(f"further requests {place}")
        self._evaluated: set[str] = set()
        self._stopping_s = math.inf
        self._found: dict[str, str] = {}
        self._t_s = 0.0
        self._pause: tuple[float, float, float] | None = None

    def stood_still(self, seconds: float) -> None:
        """Note that the launcher stood still: the next statuses show whether the run did."""
        self._pause = seconds, self._t_s, self._clock()

    def of(self, status: Mapping[str, Any]) -> list[str]:
        """A line for each new kind of refusal, again at ten times the count, for each learner that went back
        to a checkpoint, for each new kind of failure that its process survives, for what callbacks ask for,
        for a pause of the launcher, and for the first look of each kind that compares with no other.
        """
        lines, now_s = [], self._clock()
        for row in mistakes(status):
            kind = (row["taker"], row["sender"], row["kind"], row["word"])
            if row["count"] >= 10 * self._refused.get(kind, 0.1):
                self._refused[kind] = row["count"]
                lines.append(row["line"])
        returns = [f"{row.get('learner', '')}: {row.get('why')}" for row in status.get("went_back", ())]
        lines += self._returns.of([(line, line) for line in returns], now_s)  # each line has its count
        for row in failure_rows(status.get("failures", ())):
            if row["survived"] and row["kind"] not in self._failed and len(self._failed) < MOST_KINDS:
                self._failed.add(row["kind"])
                log = self._logs / f"{row['name']}.log"
                said = f" ({log})" if os.path.exists(log) else ""
                lines.append(f"{row['name']}: {row['summary']}; it goes on{said}")
        asked = [(row.get("t_s"), str(row.get("line"))) for row in status.get("requests", ())]
        lines += self._requests.of([(row, row[1]) for row in asked], now_s)
        lines += self._findings(status)
        self._t_s = time_of(status) or self._t_s
        lines += self._after_pause()
        if status.get("state") == "stopping":
            self._stopping_s = min(self._stopping_s, time_of(status) or 0.0)
        return lines + self._evaluation(_table_in(_table_in(status, "evaluation"), "last"))

    def _after_pause(self) -> list[str]:
        """Whether a pause of the launcher counts, by the run's own clock, once that is known."""
        if self._pause is None:
            return []
        stood_s, before_s, ended_s = self._pause
        if self._t_s - before_s >= stood_s / 2:
            line = f"the launcher was held up for {stood_s:.0f} s, in which the run went on"
        elif self._clock() - ended_s >= READ_S:
            line = f"the run stood still for {stood_s:.0f} s, which do not count, and goes on"
        else:
            return []
        self._pause = None
        return [line]

    def _evaluation(self, look: Mapping[str, Any]) -> list[str]:
        """A line for the first evaluation of each kind that compares with no other."""
        num_whole, num_failed = look.get("num_episodes") or 0, look.get("num_failed") or 0
        kind, why = "", ""
        if look.get("timed_out"):
            kind, cut = "timed_out", f"{look.get('num_truncated')} of {num_whole} episodes"
            at_end = (time_of(look) or 0.0) > self._stopping_s
            limit = "half of components.evaluator.stop_grace_s" if at_end else "components.evaluator.max_s"
            why = f"{cut} had not ended after {limit} and were cut"
        elif num_failed > num_whole:
            kind, failed = "failed", f"{num_failed:,} episodes ended with a failure of their environment"
            why = f"{failed}, and the {num_whole} whole ones may be the easy ones"
        if not why or kind in self._evaluated:
            return []
        self._evaluated.add(kind)
        return [f"evaluator: {why}; such an evaluation cannot end the run at its return"]

    def _findings(self, status: Mapping[str, Any]) -> list[str]:
        """A line for each finding that is new, and one for each that holds no longer."""
        now = {row["name"]: row for row in findings(status)}
        lines = [f"finding: {finding_line(now[name])}" for name in now if name not in self._found]
        if status.get("state") != "stopping":
            lines += [f"no longer: {self._found[name]}" for name in self._found if name not in now]
        self._found = {name: row["seen"] for name, row in now.items()}
        return lines


def _table_in(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a status; empty where there is none, as in that of another broker."""
    found = status.get(name)
    return found if isinstance(found, Mapping) else {}
