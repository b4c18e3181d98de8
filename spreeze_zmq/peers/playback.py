"""Plays all peers of one process: feeds it a recording over real sockets, and records what it sends."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import PeerTimeout, WireError
from spreeze_zmq.component.process import begin_recording
from spreeze_zmq.peers.outputs import Outputs
from spreeze_zmq.peers.peers import OtherEnds
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CONTROL, LEARNERS, POLICY, REPORT, SAMPLER, experience_of
from spreeze_zmq.wire import Buffer, Message, decode, encode
from spreeze_zmq.wire.channels import Entry, Publisher, Puller, RecordingReader, open_channel

Pace = Literal["recorded", "full", "step"]
#: A longer wait is announced.
PATIENCE_S = 5.0
#: High-water mark for messages of the process, which are received at once.
QUEUED = 1000


def in_fixed_order(plan: Plan, role: str) -> bool:
    """Whether a role's messages depend only on the messages that it receives, and not on their times."""
    return plan.balance.in_order and role in (*LEARNERS, SAMPLER)


class Playback(OtherEnds):
    """The peers of one process.

    Where the order is fixed (:func:`in_fixed_order`), each message is fed only after the process has sent
    everything that the recording has before it, so that its work depends on the recording alone.

    Args:
        recording: of the process.
        plan: of the recording, settled in a run's folder of its own.
        pace: ``recorded``, ``full`` (as fast as the process receives) or ``step`` (at each Enter).
        outputs: compares the messages of the process with the recording.
        timeout_s: longest wait for a message that the process owes; infinite for a debugger.

    Attributes:
        fixed: whether the order is fixed.
        alive: whether the process lives.
        num_fed: messages sent to the process.
        num_left: messages not sent, since the process ended before.
        interrupted: whether the user has interrupted the playback.
        kept: the recording of this playback.
    """

    def __init__(
        self,
        recording: RecordingReader,
        plan: Plan,
        pace: Pace,
        outputs: Outputs,
        timeout_s: float,
    ) -> None:
        about = recording.about
        super().__init__(plan, about["role"])
        self.recording, self.pace, self.outputs, self.name = recording, pace, outputs, about["name"]
        self.timeout_s, self.fixed = timeout_s, in_fixed_order(plan, self.role)
        #: Queues behave as in the run: full ones drop messages or block rollouts.
        self.queues_as_recorded = pace == "recorded" and not self.fixed
        self.alive: Callable[[], bool] = lambda: True
        self.num_fed = self.num_left = self.num_heard = self.num_to_step = 0
        self.left = self.interrupted = False
        self._last_sent: dict[tuple[str, str], int] = {}
        #: The incarnations of the recorded process and of the one that is fed; 0 until it has said something.
        self._recorded_life = self._life = 0
        index, incarnation = about["index"], about["incarnation"]
        self.kept = begin_recording(plan, self.role, index, incarnation, math.inf, mirrored=True)
        self.open("replay-0", incarnation)

    def opened(self, name: str, end: str, sender: str, incarnation: int) -> Any:
        """An end of a channel, which is recorded."""
        channel = self.plan.channels[name]
        if end == "sub":
            channel = replace(channel, high_water_mark=QUEUED)
        opened = open_channel(channel, end, sender, incarnation)
        if isinstance(opened, Publisher) and not self.queues_as_recorded:
            opened.lose_nothing()
        opened.record = partial(self.kept.add, name)
        return opened

    # --- the whole

    def run(self) -> None:
        """Feed the recording from beginning to end, then ask the process to stop.

        Raises:
            PeerTimeout: the process owes a message for longer than ``timeout_s``.
            InputError: the recording is damaged.
        """
        begin_s = time.monotonic()
        for entry in self.recording.entries():
            if entry.sent:
                if self._expect(entry) == "hello":
                    self._until(lambda: self.num_heard > 0, "say hello")
                    begin_s = time.monotonic() - entry.t_s
                continue
            if not self.over:
                self._wait_turn(begin_s + entry.t_s, entry)
            if self.over or not self._feed(entry):
                self.num_left += 1
        if self.hears_control and not self.over:
            reason = f"the recording is over, {self.num_fed} messages have been fed"
            self.ends[CONTROL].publish(Message("stop", {"roles": [self.role], "reason": reason}))

    @property
    def hears_control(self) -> bool:
        """Whether a message can ask the process to stop; not the broker, which sends such messages."""
        return CONTROL in self.ends and self.role != BROKER

    @property
    def over(self) -> bool:
        """Whether the process or the user has ended it."""
        return self.left or self.interrupted or not self.alive()

    def close(self) -> None:
        """Receive the last messages of the process, and close the channels."""
        self.pump(0.1)
        super().close()
        self.kept.close()

    # --- one message

    def _expect(self, entry: Entry) -> str:
        """Add a message that the recorded process sent, and wait for it now where the order is fixed; returns
        its kind.
        """
        try:
            message = decode(entry.frames)
        except WireError:  # the recorded process sent a message that its peer refused
            return ""
        self._recorded_life = message.incarnation
        last = self._last_sent.get((entry.channel, message.kind), -1)
        if message.repeat and message.sequence <= last:
            return message.kind
        self._last_sent[entry.channel, message.kind] = message.sequence
        compared = self.outputs.expect(entry.channel, message)
        if compared is not None and self.fixed:
            number = compared.recorded
            owed = f"{message.kind} number {number - 1} on {entry.channel}"
            self._until(lambda: compared.sent >= number, f"send {owed}, as it did after {entry.t_s:.1f} s")
        return message.kind

    def _wait_turn(self, due_s: float, entry: Entry) -> None:
        if self.pace == "recorded":
            self.wait(due_s - time.monotonic(), lambda: self.over)
        elif self.pace == "step":
            self._step(entry)

    def _step(self, entry: Entry) -> None:
        """Show the next message, and wait for Enter, for a number of messages to feed, or for q."""
        say(f"{entry.t_s:9.3f} s  {_summary(entry)}", flush=True)
        while self.num_to_step == 0 and not self.over:
            if sys.stdin.fileno() in self.pump(0.5, also=[sys.stdin.fileno()]):
                lines = os.read(sys.stdin.fileno(), 4096).decode(errors="replace").split("\n")[:-1]
                self.interrupted = not lines or "q" in lines
                self.num_to_step = sum(int(line) if line.isdecimal() else 1 for line in lines)
        self.num_to_step -= 1

    def _feed(self, entry: Entry) -> bool:
        """Send one message; False where the process ended before there was room."""
        end, frames = self.ends[entry.channel], self._addressed(entry)
        if isinstance(end, Publisher):
            self._until(lambda: end.subscriptions > 0, f"subscribe to {entry.channel}")
        while not end.forward(frames):
            self.pump(0.5, writable=[end])
            if self.over:
                return False
        self.num_fed += 1
        self.pump(0.0)
        return True

    def _addressed(self, entry: Entry) -> list[Buffer]:
        """The recorded frames, but for what a policy allows the recorded life of a sampler: the life that is
        fed is allowed that.
        """
        frames: list[Buffer] = [*entry.frames]
        if self.role != SAMPLER or entry.channel != POLICY:
            return frames
        try:
            message = decode(frames)
        except WireError:
            return frames
        limits = {**message.fields.get("collect_until", {})}
        if (limit := limits.pop(f"{self.name}/{self._recorded_life}", None)) is not None:
            limits[f"{self.name}/{self._life}"] = limit
            frames[0] = encode(message._replace(fields={**message.fields, "collect_until": limits}))[0]
        return frames

    # --- the sockets

    def hears(self, name: str) -> bool:
        """Whether to receive another message. Not more rollouts are received than up to this point of the
        recording, so that a sampler is blocked as it was then.
        """
        if not (self.queues_as_recorded and name.startswith(experience_of(""))):
            return True
        rollouts = self.outputs.by_kind.get((name, "rollout"))
        return rollouts is not None and rollouts.sent < rollouts.recorded

    def take(self, name: str) -> None:
        """Receive and compare what has arrived on a channel."""
        end = self.ends[name]
        receive = end.pull if isinstance(end, Puller) else end.receive
        while self.hears(name) and (message := receive()) is not None:
            self._life = message.incarnation
            self.outputs.take(name, message)
            self.num_heard += name == REPORT
            self.left = self.left or message.kind == "bye"

    def _until(self, done: Callable[[], bool], owed: str) -> None:
        """Wait until ``done``, or the end; ``owed`` is what the process must do, in words.

        Raises:
            PeerTimeout: it is not done within ``timeout_s``.
        """
        began_s = time.monotonic()

        def enough() -> bool:
            return self.over or done()

        if self.wait(min(PATIENCE_S, self.timeout_s), enough):
            return
        if self.timeout_s > PATIENCE_S:
            say(f"waiting for {self.name} to {owed}", flush=True)
        if not self.wait(self.timeout_s - PATIENCE_S, enough):
            raise PeerTimeout("replay", self.name, f"to {owed}", time.monotonic() - began_s)


def _summary(entry: Entry) -> str:
    """One message in a line."""
    try:
        message = decode(entry.frames)
    except WireError as error:
        return f"{entry.channel}: refused, {error}"
    arrays = [f"{name} {array.dtype} {list(array.shape)}" for name, array in message.arrays.items()]
    fields = [f"{name} {value!r:.40}" for name, value in message.fields.items()]
    what = f"{message.kind} {message.sequence} of {message.sender}"
    return f"{entry.channel}: {what}: {', '.join([*fields, *arrays])}"[:300]
