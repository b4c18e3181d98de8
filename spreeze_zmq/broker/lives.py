"""The processes of a run by name. A name has one life at a time: what another one says in it is refused, so
that nobody is spoken for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.parent_death import is_within
from spreeze_zmq.broker.figures import ProcessRecord
from spreeze_zmq.plan.roles import MOST_PROCESSES, ROLES
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels.locks import Holder, is_alive

#: Most lives whose early ``hello`` is remembered, and most that have ended.
MOST_EARLY = MOST_PAST = 1000
#: What a life that has ended may have told, and comes late.
_LATE = ("hello", "report", "bye", "episodes", "evaluation", "failure", "part")
#: What a program may send that is no process of the run.
_ANYBODYS = ("request", "stop_request")


class Lives:
    """Which life of each name is heard.

    Args:
        processes: by name, as the record has them; this object adds to them.
        watched: names that the launcher's processes, and those of which there is one, may have.
        silent_s: who has not reported for so long holds its name no longer.
        launched: whether there is a launcher: then nobody speaks in a name that nobody has claimed.

    Attributes:
        holder: who claimed a name last; None where nobody has.
    """

    def __init__(
        self, processes: dict[str, ProcessRecord], watched: Set[str], silent_s: float, *, launched: bool
    ) -> None:
        self._processes, self._watched = processes, watched
        self._silent_s, self._launched = silent_s, launched
        self._early: dict[tuple[str, int], None] = {}
        self._past: dict[tuple[str, int], None] = {}
        self.holder: Callable[[str], Holder | None] = lambda name: None

    def check(self, message: Message, now_s: float) -> None:
        """Refuse a message of another life than the one that holds its name: the incarnation in the name's
        lock decides, else its process id. Where both are unknown, as of a process of another machine that has
        just begun, a life has the name until it has said ``bye``, the launcher that it has exited, or it has
        not reported for long; and one that has said ``hello`` takes it from one that has not.

        Raises:
            WireError: ``wrong_sender``.
        """
        process = self._processes.get(message.sender)
        if process is not None and message.incarnation == process.incarnation:
            return
        if message.kind in _LATE and self.is_past(message.sender, message.incarnation):
            return
        holder = self.holder(message.sender)
        if holder is not None and holder.incarnation:
            if message.incarnation != holder.incarnation:
                raise _refusal(message, "while another holds the name's lock")
            return
        if holder is None and self._launched and message.kind not in _ANYBODYS and _is_one(message.sender):
            raise _refusal(message, "while nobody holds the name's lock")
        pid, owner = message.fields.get("pid"), holder.pid if holder is not None else 0
        owner = owner if pid is not None and is_alive(owner) else 0
        if owner and pid != owner:
            what = f"{message.kind} came from process {pid}, while {owner} holds the name's lock"
            raise WireError("wrong_sender", what)
        if process is None or (owner and process.pid != owner) or self.is_free(process, now_s):
            return
        if message.kind == "hello":
            if not process.ready:
                return
            self._early[message.sender, message.incarnation] = None
            if len(self._early) > MOST_EARLY:
                del self._early[next(iter(self._early))]
        raise _refusal(message, "while another lives: a name has one at a time")

    def is_past(self, name: str, incarnation: int) -> bool:
        """Whether a life was heard under a name and has ended, and another one has the name: what it says now
        was on its way.
        """
        return (name, incarnation) in self._past

    def is_free(self, process: ProcessRecord, now_s: float) -> bool:
        """Whether another life may have the name of this one."""
        return bool(process.gone) or now_s - process.heard_s > self._silent_s

    def has_followed(self, name: str, pid: int) -> bool:
        """Whether the life of a name that is heard has followed the one that ended: where a process and the
        broker were killed together, its next life may be heard before the launcher is.

        Args:
            name: of the process that has ended.
            pid: its process id, perhaps that of a script that had started the program; 0 where not known.
        """
        process = self._processes.get(name)
        if process is None or is_within(process.pid, pid) or (holder := self.holder(name)) is None:
            return False
        if holder.pid:
            return holder.pid == process.pid and is_alive(holder.pid)
        # of another machine, whose end is told without a process id where the machine itself is lost
        return pid != 0 and 0 != holder.incarnation == process.incarnation

    def begin(self, name: str, incarnation: int, role: str, pid: int, now_s: float) -> ProcessRecord:
        """The record of a life that takes its name now.

        Raises:
            WireError: there are more processes than a record can hold.
        """
        if (before := self._processes.get(name)) is None:
            self._make_room(name, now_s)
        elif before.gone or ((holder := self.holder(name)) and holder.incarnation == incarnation):
            self._past[name, before.incarnation] = None
            if len(self._past) > MOST_PAST:
                del self._past[next(iter(self._past))]
        ready = (name, incarnation) in self._early  # its hello came while another life had the name
        self._early.pop((name, incarnation), None)
        process = ProcessRecord(role, pid, ready, incarnation=incarnation)
        process.heard_s, self._processes[name] = now_s, process
        return process

    def _make_room(self, name: str, now_s: float) -> None:
        """Forget one process that is gone, or has been silent for so long that its name is free, if there are
        very many, so that no peer fills the memory. Those that the launcher watches always have room: the
        plan has few of them.
        """
        if name in self._watched or len(self._processes) < MOST_PROCESSES:
            return
        gone = next((other for other, one in self._processes.items() if self.is_free(one, now_s)), None)
        if gone is None:
            raise WireError("too_many", f"it is one more than the {MOST_PROCESSES:,} processes of this run")
        del self._processes[gone]

    def instances(self, *, living: bool = False) -> set[str]:
        """The newest incarnation of each process, or of each living one, as ``NAME/INCARNATION``."""
        return {
            f"{name}/{one.incarnation}" for name, one in self._processes.items() if not (living and one.gone)
        }

    def how_gone(self, stream: str) -> str:
        """How the process of a stream, ``NAME/INCARNATION``, has ended, as said of a process."""
        name, _, incarnation = stream.partition("/")
        if (process := self._processes.get(name)) is None:
            return "has never reported"
        return process.gone if str(process.incarnation) == incarnation else "had started again"

    def state(self) -> dict[str, list[Any]]:
        """JSON-able rows of all processes, by name."""
        return {
            name: [p.role, p.incarnation, p.pid, p.ready, p.gone, dict(p.clock), p.pushed]
            for name, p in self._processes.items()
        }

    def restore(self, state: Mapping[str, Sequence[Any]], now_s: float) -> None:
        """Inverse of :meth:`state`; all were heard now."""
        for name, (role, incarnation, pid, ready, gone, clock, pushed) in state.items():
            self._processes[name] = ProcessRecord(
                role,
                pid,
                ready,
                incarnation=incarnation,
                heard_s=now_s,
                gone=gone,
                clock=clock,
                pushed=pushed,
            )


def _refusal(message: Message, why: str) -> WireError:
    """The incarnation that is heard is not told: who knows it can speak for that process."""
    return WireError("wrong_sender", f"{message.kind} came from its incarnation {message.incarnation}, {why}")


def _is_one(sender: str) -> bool:
    """Whether a name is that of a process, not of the launcher or of a program that only asks."""
    return sender.rpartition("-")[0] in ROLES
