"""The deadlines of a run's processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.base.parent_death import is_within
from spreeze_zmq.broker.crowd import ready_ones
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER

#: Longest silence of a process where the run's broker has no such option.
HEARTBEAT_S = 15.0
#: Time in which a broker hears of an end.
TOLD_S = 2.0
#: So many statuses that would have come tell of a broker that is silent, or of a process that is not ready.
STATUSES = 3
#: What stands for the row of a process that is ready and reports, where a status has none of it.
READY = {"ready": True, "silent_s": 0.0}


class Deadlines:
    """Detects processes that do not get ready, or do not report, in time.

    Time in which a process could have run, and waited for a core that other programs had, does not count.

    Args:
        plan: ``start_timeout_s`` of each component and ``heartbeat_timeout_s`` of the broker are read. What
            a status tells is waited for three of the broker's ``status_interval_s`` at the least.
        starved_s: seconds in which a process has waited for a core since it began, by name; 0 if not known.
        clock: monotonic seconds.

    Attributes:
        ready: the processes without rows in the newest status that are ready.
    """

    def __init__(
        self, plan: Plan, starved_s: Callable[[str], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._components, self._clock, self._starved_s = plan.components, clock, starved_s
        broker = plan.components[BROKER].options
        self._told_s: float = STATUSES * broker.get("status_interval_s", 0.0)
        self._heartbeat_s: float = broker.get("heartbeat_timeout_s", HEARTBEAT_S)
        self._started_s: dict[str, float] = {}
        self._starved: dict[str, tuple[float, float]] = {}
        self._given_up: set[str] = set()
        self._waited_for: dict[str, str] = {}
        self._at_work: dict[str, tuple[float, float]] = {}
        self._status_s, self.ready = math.inf, set[str]()

    def begin(self, name: str) -> None:
        """Begin the start timeout of a process that starts, or is about to be restarted."""
        self._started_s[name], self._starved[name] = self._clock(), (0.0, self._starved_s(name))
        self._given_up.discard(name)
        self._at_work.pop(name, None)

    def worked_s(self, name: str) -> float:
        """Seconds in which the last life of a process was at work: from the first look that found it ready to
        its last report. The time of a deadline that it has missed is not among them.
        """
        ready_s, heard_s = self._at_work.get(name, (0.0, 0.0))
        return heard_s - ready_s

    def is_starting(self, name: str) -> bool:
        """Whether a process may yet get ready: what is refused in its name may be somebody else's."""
        return name in self._started_s

    def row_of(self, name: str, pid: int, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a status has of a living process; empty for nothing. A row with another process id is its
        predecessor's, and so may be what a status says that came soon after its start.
        """
        row: Mapping[str, Any] = status.get("processes", {}).get(name, {})
        if is_within(row.get("pid"), pid):
            return row
        is_told = self._status_s > self._started_s.get(name, -math.inf) + TOLD_S
        return READY if not row and is_told and name in self.ready else {}

    def give_up(self, name: str) -> None:
        """Expect nothing of a process that is killed for a deadline, until :meth:`begin`: on a busy machine
        its end comes late.
        """
        self._given_up.add(name)

    def hear_status(self, status: Mapping[str, Any]) -> None:
        """Note what the broker has published, which is its own heartbeat."""
        self._status_s, self.ready = self._clock(), ready_ones(status)

    def postpone(self, seconds: float) -> None:
        """Move all deadlines, after the launcher itself was stopped for a time, whether processes waited for
        a core in it or not.
        """
        self._status_s += seconds
        self._started_s = {name: began_s + seconds for name, began_s in self._started_s.items()}
        self._starved = {name: (before, self._starved_s(name)) for name, (before, _) in self._starved.items()}

    def missed(self, name: str, process: Mapping[str, Any]) -> str:
        """The deadline that a living process has missed, in words; empty for none.

        Args:
            name: ``ROLE-INDEX``.
            process: its row of the newest status; empty where there is none. While it starts, a change of
                what it waits for counts as progress and begins its start timeout again.
        """
        if name in self._given_up:
            return ""
        waiting_for = process.get("waiting_for", "")
        if process.get("ready") and self._started_s.pop(name, None) is not None:
            self._starved.pop(name, None)
        elif name in self._started_s and waiting_for != self._waited_for.get(name, ""):
            self.begin(name)
        self._waited_for[name] = waiting_for
        if name in self._started_s:
            timeout_s = max(self._components[name.rpartition("-")[0]].start_timeout_s, self._told_s)
            return self._late(name, "not ready after", self._clock() - self._started_s[name], timeout_s)
        longest_s, silent_s = self._heartbeat_s, process.get("silent_s")
        if name == f"{BROKER}-0":
            longest_s, silent_s = max(longest_s, self._told_s), self._clock() - self._status_s
        if isinstance(silent_s, int | float):
            heard_s = self._clock() - silent_s
            ready_s, _ = self._at_work.setdefault(name, (heard_s, heard_s))
            self._at_work[name] = ready_s, max(ready_s, heard_s)
        if not isinstance(silent_s, int | float) or silent_s < self._heartbeat_s / 3:
            self._starved.pop(name, None)
            return ""
        late = self._late(name, "has not reported for", silent_s, longest_s)
        return late and f"{late}, longer than heartbeat_timeout_s"

    def _late(self, name: str, what: str, waited_s: float, timeout_s: float) -> str:
        """That a wait has been too long, in words; empty if it has not."""
        now_s = self._starved_s(name)
        starved_s, before_s = self._starved.get(name, (0.0, now_s))
        # A server's before it has forked the process, which begins at 0.
        starved_s += now_s - before_s if now_s >= before_s else now_s
        self._starved[name] = starved_s, now_s
        if waited_s - starved_s <= timeout_s:
            return ""
        beside = f", in {starved_s:.0f} s of which it waited for a core" if starved_s >= 0.5 else ""
        return f"{what} {waited_s:.0f} s{beside}"
