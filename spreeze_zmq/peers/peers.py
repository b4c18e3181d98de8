"""The peers of one real process: the other ends of its channels, and what they hear of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.peers.program import Life
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.processes import ComponentPlan
from spreeze_zmq.plan.roles import OTHER_END
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import Message, channels, decode

#: Longest wait of one poll of the sockets.
SLICE_S = 0.02
#: Messages of a process that has ended may still arrive for this long.
LAST_WORDS_S = 1.0
#: Of a judge that has looked at no socket for longer it is not known when something came.
LATE_S = 0.5
NAME, INCARNATION = "peer-0", 2**53 - 2


class NotSeen(Exception):
    """A clause cannot be judged, since what it is about did not happen; the message says why."""


class Stalled(Exception):
    """The process did not do what an act waits for: this breaks ``clause`` and ends the act."""

    def __init__(self, clause: str, seen: str) -> None:
        self.clause = clause
        super().__init__(seen)


@dataclass
class Heard:
    """One valid message that arrived; ``at_s`` is monotonic time."""

    at_s: float
    channel: str
    message: Message


class OtherEnds:
    """The other end of each channel of one process.

    Attributes:
        plan: the run's, as the process reads it.
        role: the process's.
        ends: channel -> its other end.
        meanwhile: called before each poll of the sockets.
    """

    def __init__(self, plan: Plan, role: str) -> None:
        self.plan, self.role = plan, role
        self.ends: dict[str, Any] = {}
        self.meanwhile: Callable[[], Any] = lambda: None

    def open(self, sender: str = NAME, incarnation: int = INCARNATION, *, later: str = "") -> None:
        """Open the other end of each channel that the role uses and that is not open, all of one sender; but
        for one that comes ``later``.
        """
        own = self.plan.components[self.role].channels.items()
        for name, end in ((name, end) for name, end in own if name not in (*self.ends, later)):
            self.ends[name] = self.opened(name, OTHER_END[end], sender, incarnation)

    def opened(self, name: str, end: str, sender: str, incarnation: int) -> Any:
        """An end of a channel."""
        return channels.open_channel(self.plan.channels[name], end, sender, incarnation)

    def pump(
        self, timeout_s: float = SLICE_S, writable: Collection[Any] = (), also: Sequence[int] = ()
    ) -> set[Any]:
        """Receive all that has arrived, and answer subscriptions; waits up to ``timeout_s`` for something.

        Args:
            timeout_s: longest wait.
            writable: ends on which it waits for room to send.
            also: descriptors on which it waits for something to read.

        Returns:
            The ends and descriptors that are ready.
        """
        self.meanwhile()
        ends = self.ends.items()
        hearing = {n: e for n, e in ends if isinstance(e, channels.Puller | channels.Subscriber)}
        hearing = {name: end for name, end in hearing.items() if self.hears(name)}
        publishers = [end for _, end in ends if isinstance(end, channels.Publisher)]
        ready = channels.poll([*hearing.values(), *publishers, *also], writable, timeout_s=timeout_s)
        for name in hearing:
            self.take(name)
        return ready

    def hears(self, name: str) -> bool:
        """Whether to receive from a channel now."""
        return True

    def take(self, name: str) -> None:
        """Receive what has arrived on a channel."""
        raise NotImplementedError

    def wait(self, seconds: float, enough: Callable[[], Any] = lambda: False) -> Any:
        """Receive for ``seconds``, or until ``enough()`` is true; returns its last value. What has come by
        then is received although this process was held up meanwhile.
        """
        until_s = time.monotonic() + seconds
        while not (value := enough()):
            left_s = until_s - time.monotonic()
            self.pump(min(max(left_s, 0.0), SLICE_S))
            if left_s <= 0:
                return enough()
        return value

    def close(self) -> None:
        """Close the sockets."""
        for end in self.ends.values():
            end.close()
        channels.terminate()


class Peers(OtherEnds):
    """A run in which one process is real.

    Attributes:
        tier: which clauses are checked.
        patience_s: how long an act waits for each thing that must happen.
        published: every message that was published, as it was sent.
        heard: every valid message that arrived, in order.
        refusals: for each invalid message, its channel and what is wrong with it.
        marks: name -> position in ``heard``.
        notes: what an act stores for the checks that follow it.
        holding: channels from which nothing is received at present.
        pauses: monotonic begin and end of each time in which nothing was looked at for more than ``LATE_S``.
        lives: the starts of the program.
    """

    def __init__(
        self, plan: Plan, role: str, command: Sequence[str], folder: Path, tier: str, patience_s: float
    ) -> None:
        plan, self.sockets = write_plan(plan, RunFolder.create(plan.name, str(folder)))
        super().__init__(plan, role)
        self.command, self.tier, self.patience_s = command, tier, patience_s
        self.folder = RunFolder(folder.resolve())
        about = json.loads(self.folder.run_file.read_text())
        about["key_of_a_newer_launcher"] = about["run"]["key_of_a_newer_launcher"] = {"pass": "over"}
        self.folder.run_file.write_text(json.dumps(about))
        self.published: list[Message] = []
        self.heard: list[Heard] = []
        self.refusals: list[str] = []
        self.marks: dict[str, int] = {}
        self.notes: dict[str, Any] = {}
        self.holding: set[str] = set()
        self.pauses: list[tuple[float, float]] = []
        self._looked_s = time.monotonic()
        self.lives: list[Life] = []

    @property
    def about(self) -> ComponentPlan:
        """The role's part of the plan."""
        return self.plan.components[self.role]

    def start(self, index: int) -> Life:
        """Start the program as the launcher does."""
        name = f"{self.role}-{index}"
        command = [*self.command, str(self.folder.run_file), str(index)]
        log = self.folder.logs / f"{name}-{len(self.lives)}.log"
        self.lives.append(Life(name, command, log, Path(self.plan.socket_dir) / f"{name}.lock"))
        return self.lives[-1]

    # --- the channels

    def plays(self, channel: str) -> bool:
        """Whether the messages of a channel come from here, to all who subscribe."""
        return isinstance(self.ends.get(channel), channels.Publisher)

    def publish(
        self, channel: str, kind: str, arrays: Mapping[str, Any] | None = None, /, **fields: Any
    ) -> Message:
        """Publish a message; returns it as sent."""
        end = self.ends[channel]
        message = Message(kind, fields, arrays or {}, end.sender, end.incarnation, end.published)
        end.publish(message)
        self.published.append(message)
        return message

    def restart(self, channel: str, incarnation: int) -> None:
        """Begin another life of a publisher, which counts its messages from 0 again."""
        self.ends[channel].incarnation, self.ends[channel].published = incarnation, 0

    def pump(
        self, timeout_s: float = SLICE_S, writable: Collection[Any] = (), also: Sequence[int] = ()
    ) -> set[Any]:
        """As every harness does, and note where this one was held up before it, as by its neighbours."""
        before_s, self._looked_s = self._looked_s, time.monotonic()
        if self._looked_s - before_s > LATE_S:
            self.pauses.append((before_s, self._looked_s))
        return super().pump(timeout_s, writable, also)

    def paused_s(self, since_s: float, until_s: float) -> float:
        """How long nothing was looked at between two moments, in all."""
        now_s = time.monotonic()  # the present pause, if there is one, is not noted yet
        pauses = [*self.pauses, (self._looked_s, now_s if now_s - self._looked_s > LATE_S else 0.0)]
        return sum(max(0.0, min(until_s, end) - max(since_s, begin)) for begin, end in pauses)

    def hears(self, name: str) -> bool:
        """Whether to receive from a channel now."""
        return name not in self.holding

    def take(self, name: str) -> None:
        """Receive what has arrived on a channel, valid or not."""
        socket = self.ends[name].socket
        for _ in range(100):
            if not socket.poll(0):
                break
            self.hear(name, socket.recv_multipart())

    def hear(self, channel: str, frames: Sequence[bytes]) -> None:
        """Record one message, or why it is invalid."""
        try:
            message = decode(frames)
            if message.kind not in self.plan.channels[channel].kinds:
                raise WireError("wrong_kind", f"a {message.kind} message on {channel}")
            self.heard.append(Heard(time.monotonic(), channel, message))
        except WireError as error:
            self.refusals.append(f"on {channel}: {error}")

    def until(
        self, clause: str, what: str, condition: Callable[[], Any], timeout_s: float | None = None
    ) -> Any:
        """Receive until the condition is true; returns its value.

        Args:
            clause: the number of the clause that requires it.
            what: words for what is waited for.
            condition: evaluated after each poll.
            timeout_s: ``patience_s`` by default.

        Raises:
            Stalled: the time is over, the process ended, or it sent an invalid message.
        """
        timeout_s, life = timeout_s or self.patience_s, self.lives[-1]
        until_s = time.monotonic() + timeout_s
        while not (value := condition()):
            if self.refusals:
                raise Stalled("M3", f"{len(self.refusals)} refused, the first {self.refusals[0]}")
            if (ended := life.ended) or time.monotonic() > until_s:
                if last := self.wait(LAST_WORDS_S if ended else 0.0, condition):
                    return last
                why = f": {life.ending()}" if ended else f" in {timeout_s:.0f} s"
                raise Stalled(clause, f"{what} did not come{why}")
            self.pump()
        return value

    # --- what was heard

    def mark(self, name: str) -> None:
        """Name the present moment, so that checks can refer to it."""
        self.marks[name] = len(self.heard)

    def reached(self, mark: str) -> str:
        """Words for a clause that is kept if the act reached a mark. Raises NotSeen if it did not."""
        if mark not in self.marks:
            raise NotSeen(f"the act did not reach '{mark}'")
        return "it went on"

    def note(self, name: str) -> Any:
        """What the act stored under a name. Raises NotSeen if it did not get that far."""
        if name not in self.notes:
            raise NotSeen(f"the act did not reach '{name}'")
        return self.notes[name]

    def times(self, start: str | None, end: str | None, kind: str, channel: str = "") -> list[Heard]:
        """The messages of a kind between two marks, with their times; None is the begin or the end.

        Raises:
            NotSeen: the act did not reach one of the marks.
        """
        for mark in filter(None, (start, end)):
            self.reached(mark)
        span = self.heard[self.marks[start] if start else 0 : self.marks[end] if end else None]
        return [h for h in span if h.message.kind == kind and channel in ("", h.channel)]

    def between(self, start: str | None, end: str | None, kind: str, channel: str = "") -> list[Message]:
        """The messages that :meth:`times` returns, without their times."""
        return [heard.message for heard in self.times(start, end, kind, channel)]

    def close(self) -> None:
        """Kill every process, close the sockets and remove their folder."""
        for life in self.lives:
            life.kill()
        super().close()
        self.sockets.remove()
