"""All peers of one process: the other ends of its channels, and a record of what was heard there."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from spreeze_zmq import channels
from spreeze_zmq.conform.clauses import NotSeen, Stalled
from spreeze_zmq.errors import WireError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import OTHER_END
from spreeze_zmq.run.folder import RunFolder, settle
from spreeze_zmq.wire import KINDS, Message, decode, encode

#: Longest pause between two looks at the sockets.
SLICE_S = 0.02
#: What a process has sent before its end may still be on its way for so long.
LAST_WORDS_S = 0.3
NAME, INCARNATION = "peer-0", 2**53 - 2


@dataclass
class Heard:
    """One message that came, or why it was refused; ``at_s`` is monotonic."""

    at_s: float
    channel: str
    message: Message | None
    refusal: str = ""


@dataclass
class Life:
    """One start of the program; ``usage`` is what the operating system last said of it."""

    name: str
    process: subprocess.Popen[bytes]
    began_s: float
    log: Path
    usage: dict[str, float] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def ending(self) -> str:
        """How it ended, with the last lines of its log."""
        words = self.log.read_text(errors="replace").strip().splitlines()[-3:]
        return f"it ended with exit code {self.process.poll()}; its log: {' / '.join(words) or 'empty'}"

    def look(self) -> None:
        """Note its memory and CPU time."""
        try:
            process = psutil.Process(self.process.pid)
            self.usage = {"rss": process.memory_info().rss, "cpu_s": sum(process.cpu_times()[:4])}
        except psutil.Error:  # it has just ended
            pass

    def kill(self) -> None:
        """End it and its children."""
        if not self.ended:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Voice:
    """The sending end of a channel, which can say anything, and repeats its latest for late joiners.

    Attributes:
        name, incarnation, sequence: the origin of the next message.
    """

    def __init__(self, end: Any, name: str = NAME, incarnation: int = INCARNATION) -> None:
        self.end, self.name, self.incarnation, self.sequence = end, name, incarnation, 0
        self.latest: dict[str, Message] = {}

    def say(self, message: Message) -> Message:
        """Send with the next sequence number; returns the message as it went out."""
        sent = message._replace(sender=self.name, incarnation=self.incarnation, sequence=self.sequence)
        self.raw(encode(sent))
        self.sequence += 1
        if KINDS[sent.kind].retained:
            self.latest[sent.kind] = sent
        return sent

    def raw(self, frames: Sequence[Any]) -> None:
        """Send bytes."""
        self.end.socket.send_multipart(frames)

    def serve(self) -> None:
        """Answer new subscriptions."""
        asked = False
        while self.end.socket.poll(0):
            asked |= self.end.socket.recv()[:1] == b"\1"
        for message in sorted(self.latest.values(), key=lambda m: m.sequence) if asked else ():
            self.raw(encode(message._replace(repeat=True)))


class Peers:
    """A run of which one process is real.

    Attributes:
        plan: as the process reads it.
        role: of the process.
        tier: of the clauses that are looked at.
        patience_s: how long an act waits for what must come.
        ends: channel -> its other end; ``voices`` are those that publish.
        heard: everything that came, in order.
        marks: name -> position in ``heard``.
        notes: what an act keeps for its checks.
        holding: channels from which nothing is taken now.
        lives: the starts of the program.
        meanwhile: what is done at each look at the sockets.
    """

    def __init__(
        self, plan: Plan, role: str, command: Sequence[str], folder: Path, tier: str, patience_s: float
    ) -> None:
        self.plan, self.sockets = settle(plan, RunFolder.create(plan.name, str(folder)))
        self.role, self.command, self.tier, self.patience_s = role, command, tier, patience_s
        self.about, self.folder = self.plan.components[role], RunFolder(folder.resolve())
        about = json.loads(self.folder.run_file.read_text())
        about["key_of_a_newer_launcher"] = about["run"]["key_of_a_newer_launcher"] = {"pass": "over"}
        self.folder.run_file.write_text(json.dumps(about))
        self.ends: dict[str, Any] = {}
        self.voices: dict[str, Voice] = {}
        self.heard: list[Heard] = []
        self.marks: dict[str, int] = {}
        self.notes: dict[str, Any] = {}
        self.holding: set[str] = set()
        self.lives: list[Life] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    def start(self, index: int) -> Life:
        """Start the program as the launcher does."""
        name = f"{self.role}-{index}"
        log = self.folder.logs / f"{name}-{len(self.lives)}.log"
        command = [*self.command, str(self.folder.run_file), str(index)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self.lives.append(Life(name, process, time.monotonic(), log))
        return self.lives[-1]

    def lock_of(self, life: Life) -> tuple[bool, str]:
        """Whether the lock of its name is held, and what is written there."""
        path = Path(self.plan.socket_dir) / f"{life.name}.lock"
        text = path.read_text().strip() if path.exists() else "there is no such file"
        try:
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, text
        except OSError:
            pass
        return False, text

    # --- the channels

    def open(self) -> None:
        """Open the other end of each channel that the role uses."""
        for name, end in self.about.channels.items():
            other = channels.open_channel(self.plan.channels[name], OTHER_END[end], NAME, INCARNATION)
            self.ends[name] = other
            if isinstance(other, channels.Publisher):
                self.voices[name] = Voice(other)

    def say(self, channel: str, kind: str, arrays: Mapping[str, Any] | None = None, **fields: Any) -> Message:
        """Publish a message."""
        return self.voices[channel].say(Message(kind, fields, arrays or {}))

    def pump(self) -> None:
        """Answer subscriptions and take everything that waits; with nothing there, wait one slice."""
        self.meanwhile()
        for voice in self.voices.values():
            voice.serve()
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
        """Note one message."""
        try:
            message = decode(frames)
            if message.kind not in self.plan.channels[channel].kinds:
                raise WireError("wrong_kind", f"a {message.kind} message on {channel}")
            self.heard.append(Heard(time.monotonic(), channel, message))
        except WireError as error:
            self.heard.append(Heard(time.monotonic(), channel, None, str(error)))

    def wait(self, seconds: float, enough: Callable[[], Any] = lambda: False) -> Any:
        """Listen for so long, or until it is enough; returns what that gave."""
        until_s = time.monotonic() + seconds
        while not (found := enough()) and time.monotonic() < until_s:
            self.pump()
        return found

    def until(
        self, clause: str, what: str, condition: Callable[[], Any], timeout_s: float | None = None
    ) -> Any:
        """Listen until the condition holds; returns what it gave.

        Raises:
            Stalled: it did not, a message was refused, or the process ended. ``clause`` is broken by this.
        """
        timeout_s, life = timeout_s or self.patience_s, self.lives[-1]
        until_s = time.monotonic() + timeout_s
        while not (found := condition()):
            if self.refusals:
                first = self.refusals[0]
                raise Stalled("M3", f"{len(self.refusals)} refused, on {first.channel}: {first.refusal}")
            if life.ended:
                if last := self.wait(LAST_WORDS_S, condition):
                    return last
                raise Stalled(clause, f"{what} was waited for, but {life.ending()}")
            if time.monotonic() > until_s:
                raise Stalled(clause, f"{what} did not come in {timeout_s:.0f} s")
            self.pump()
        return found

    # --- what was heard

    @property
    def refusals(self) -> list[Heard]:
        """What was refused."""
        return [heard for heard in self.heard if heard.refusal]

    def mark(self, name: str) -> None:
        """Name this moment."""
        self.marks[name] = len(self.heard)

    def reached(self, mark: str) -> str:
        """Words for a clause that is kept where a mark was reached. Raises NotSeen where it was not."""
        if mark not in self.marks:
            raise NotSeen(f"the process was not brought as far as '{mark}'")
        return "it went on"

    def note(self, name: str) -> Any:
        """What an act has kept. Raises NotSeen where it did not come so far."""
        if name not in self.notes:
            raise NotSeen(f"the process was not brought as far as '{name}'")
        return self.notes[name]

    def times(self, start: str | None, end: str | None, kind: str, channel: str = "") -> list[Heard]:
        """The messages of a kind between two marks, with their times. Raises NotSeen without the marks."""
        for mark in filter(None, (start, end)):
            self.reached(mark)
        span = self.heard[self.marks[start] if start else 0 : self.marks[end] if end else None]
        wanted = [heard for heard in span if channel in ("", heard.channel)]
        return [heard for heard in wanted if heard.message and heard.message.kind == kind]

    def between(self, start: str | None, end: str | None, kind: str, channel: str = "") -> list[Message]:
        """As :meth:`times`, the messages alone."""
        return [heard.message for heard in self.times(start, end, kind, channel) if heard.message]

    def close(self) -> None:
        """End every process, and leave nothing behind."""
        for life in self.lives:
            life.kill()
        for end in self.ends.values():
            end.close()
        channels.terminate()
        self.sockets.remove()
