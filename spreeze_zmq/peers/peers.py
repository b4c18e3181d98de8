"""Plays every peer of one real process: holds the other ends of its channels and records what it sends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.peers.program import Life
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import OTHER_END
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import KINDS, Message, channels, decode, encode

#: Longest wait of one poll of the sockets.
SLICE_S = 0.02
#: Messages of a process that has ended may still arrive for this long.
LAST_WORDS_S = 0.3
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


class PlayedPublisher:
    """Publishes on one channel, invalid messages too, and repeats the latest of each kind for late joiners.

    Attributes:
        incarnation, sequence: of the next message.
        latest: by kind, the message that a late joiner gets.
    """

    def __init__(self, end: channels.Publisher) -> None:
        self.end, self.incarnation, self.sequence = end, INCARNATION, 0
        self.latest: dict[str, Message] = {}

    def send(self, message: Message) -> Message:
        """Send with the next sequence number; returns the message as sent."""
        sent = message._replace(sender=NAME, incarnation=self.incarnation, sequence=self.sequence)
        self.send_frames(encode(sent))
        self.sequence += 1
        if KINDS[sent.kind].retained:
            self.latest[sent.kind] = sent
        return sent

    def send_frames(self, frames: Sequence[Any]) -> None:
        """Send these frames as they are."""
        self.end.socket.send_multipart(frames)

    def answer_subscriptions(self) -> None:
        """Repeat the latest messages if somebody has subscribed since the last call."""
        asked = False
        while self.end.socket.poll(0):
            asked |= self.end.socket.recv()[:1] == b"\1"
        for message in sorted(self.latest.values(), key=lambda m: m.sequence) if asked else ():
            self.send_frames(encode(message._replace(repeat=True)))


class Peers:
    """A run in which one process is real.

    Attributes:
        plan: the run's, as the process reads it.
        role: the process's.
        tier: which clauses are checked.
        patience_s: how long an act waits for each thing that must happen.
        ends: channel -> its other end; ``publishers`` has those that publish.
        heard: every valid message that arrived, in order.
        refusals: for each invalid message, its channel and what is wrong with it.
        marks: name -> position in ``heard``.
        notes: what an act stores for the checks that follow it.
        holding: channels from which nothing is received at present.
        lives: the starts of the program.
        meanwhile: called before each poll of the sockets.
    """

    def __init__(
        self, plan: Plan, role: str, command: Sequence[str], folder: Path, tier: str, patience_s: float
    ) -> None:
        self.plan, self.sockets = write_plan(plan, RunFolder.create(plan.name, str(folder)))
        self.role, self.command, self.tier, self.patience_s = role, command, tier, patience_s
        self.about, self.folder = self.plan.components[role], RunFolder(folder.resolve())
        about = json.loads(self.folder.run_file.read_text())
        about["key_of_a_newer_launcher"] = about["run"]["key_of_a_newer_launcher"] = {"pass": "over"}
        self.folder.run_file.write_text(json.dumps(about))
        self.ends: dict[str, Any] = {}
        self.publishers: dict[str, PlayedPublisher] = {}
        self.heard: list[Heard] = []
        self.refusals: list[str] = []
        self.marks: dict[str, int] = {}
        self.notes: dict[str, Any] = {}
        self.holding: set[str] = set()
        self.lives: list[Life] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    def start(self, index: int) -> Life:
        """Start the program as the launcher does."""
        name = f"{self.role}-{index}"
        command = [*self.command, str(self.folder.run_file), str(index)]
        log = self.folder.logs / f"{name}-{len(self.lives)}.log"
        self.lives.append(Life(name, command, log, Path(self.plan.socket_dir) / f"{name}.lock"))
        return self.lives[-1]

    # --- the channels

    def open(self) -> None:
        """Open the other end of each channel that the role uses."""
        for name, end in self.about.channels.items():
            other = channels.open_channel(self.plan.channels[name], OTHER_END[end], NAME, INCARNATION)
            self.ends[name] = other
            if isinstance(other, channels.Publisher):
                self.publishers[name] = PlayedPublisher(other)

    def publish(self, channel: str, kind: str, **fields: Any) -> Message:
        """Publish a message without arrays; returns it as sent."""
        return self.publishers[channel].send(Message(kind, fields, {}))

    def pump(self) -> None:
        """Answer subscriptions and receive all that has arrived; waits up to ``SLICE_S`` for something."""
        self.meanwhile()
        for publisher in self.publishers.values():
            publisher.answer_subscriptions()
        hears = channels.Puller | channels.Subscriber
        names = {
            e: name for name, e in self.ends.items() if isinstance(e, hears) and name not in self.holding
        }
        for end in channels.poll(names, timeout_s=SLICE_S):
            for _ in range(100):
                if not end.socket.poll(0):
                    break
                self.hear(names[end], end.socket.recv_multipart())

    def hear(self, channel: str, frames: Sequence[bytes]) -> None:
        """Record one message, or why it is invalid."""
        try:
            message = decode(frames)
            if message.kind not in self.plan.channels[channel].kinds:
                raise WireError("wrong_kind", f"a {message.kind} message on {channel}")
            self.heard.append(Heard(time.monotonic(), channel, message))
        except WireError as error:
            self.refusals.append(f"on {channel}: {error}")

    def wait(self, seconds: float, enough: Callable[[], Any] = lambda: False) -> Any:
        """Receive for ``seconds``, or until ``enough()`` is true; returns its last value."""
        until_s = time.monotonic() + seconds
        while not (value := enough()) and time.monotonic() < until_s:
            self.pump()
        return value

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
            if life.ended:
                if last := self.wait(LAST_WORDS_S, condition):
                    return last
                raise Stalled(clause, f"{what} did not come: {life.ending()}")
            if time.monotonic() > until_s:
                raise Stalled(clause, f"{what} did not come in {timeout_s:.0f} s")
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
        for end in self.ends.values():
            end.close()
        channels.terminate()
        self.sockets.remove()
