"""The base of every component: joins the run, connects, polls, handles control messages, reports, stops."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.parent_death import is_bound
from spreeze_zmq.component.failures import ToldFailures
from spreeze_zmq.component.handing import Handing
from spreeze_zmq.component.long_work import reporting_while
from spreeze_zmq.component.process import Clock, begin_recording, claim_name, limit_of
from spreeze_zmq.component.reporting import REPORT_INTERVAL_S, Reporting
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CONTROL, REPORT
from spreeze_zmq.run.checkpoint import SavedCheckpoint, prune, restore_point
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import CHECKPOINT
from spreeze_zmq.wire import PROTOCOL_VERSION, Message, channels

#: Longest wait of a process that leaves for room for its last reports.
LAST_REPORTS_S = 2.0
#: Why a process stops that was started by hand, whom the kernel tells of no death.
ORPHANED = "the launcher of the run is gone"

log = logging.getLogger("spreeze")

ChannelT = TypeVar("ChannelT", bound=channels.Channel)


class Component(Reporting):
    """One process of the run: its plan, its channels, its figures, and whether it should stop.

    Attributes:
        incarnation: random number below 2**53 that distinguishes successive processes of one name.
        plan: the resolved run.
        folder: the run's folder.
        environment: spaces and limits of the run's environment.
        options: this role's own options.
        relist: called when reports may have been lost, so that ``taken`` lists all that they listed.
        handing: the files that it writes into the run's folder, and reads there.
        hear_own: receives the broker's reports about itself; every other role sends its reports.
        stop_reason: why it should stop; empty while it should not.
        stopping_roles: roles that the broker has stopped.
        at_end: called after the last message has been sent, as to close environments; may hang or raise.
    """

    def __init__(self, role: str, plan: Plan, index: int | None = None) -> None:
        self.plan = plan
        self.folder = RunFolder(Path(plan.run_dir))
        self.environment = plan.environment
        self.options: Mapping[str, Any] = plan.components[role].options
        self.incarnation = secrets.randbelow(2**53 - 1) + 1
        self.index, self._name_lock = claim_name(role, index, plan, self.incarnation)
        super().__init__(role, f"{role}-{self.index}")
        self.relist: Callable[[], None] = lambda: None
        self.hear_own: Callable[[Message], None] = lambda message: None
        self.handing = Handing(self.folder, self.name, self._send, self.breathe)
        sockets = Path(plan.socket_dir)
        self._watched = sockets if not is_bound() and channels.SocketFolder.is_held(sockets) else None
        self.stop_reason = ""
        self.stopping_roles: set[str] = set()
        self.at_end: list[Callable[[], object]] = []
        self._handlers: dict[str, list[Callable[[Mapping[str, Any]], None]]] = {"stop": [self._on_stop]}
        self.on("status", self._say_hello_again)
        limit_mb = limit_of(plan, role, self.index)
        self._recording = limit_mb and begin_recording(plan, role, self.index, self.incarnation, limit_mb)
        self._failures = ToldFailures(self.name, partial(self.report, "failure"), self._recording or None)
        self._publishers: list[channels.Publisher] = []
        self._next_report_s = time.monotonic() + REPORT_INTERVAL_S
        self._broker: int | None = None
        self._control = self.open(CONTROL, channels.Subscriber) if role != BROKER else None
        self._outbox = self.open(REPORT, channels.Outbox) if role != BROKER else None

    # --- channels

    def open(self, channel: str, kind: type[ChannelT]) -> ChannelT:
        """This end of a channel, which is of this ``kind``; opened at the first call."""
        if channel not in self._channels:
            end = self.plan.components[self.role].channels[channel]
            opened = channels.open_channel(self.plan.channels[channel], end, self.name, self.incarnation)
            self._channels[channel] = opened
            if self._recording:
                opened.record = partial(self._recording.add, channel)
            if isinstance(opened, channels.Publisher):
                self._publishers.append(opened)
        found = self._channels[channel]
        assert isinstance(found, kind), f"{channel}: {found} is no {kind.__name__}"
        return found

    def seed_sequence(self) -> np.random.SeedSequence:
        """Seeds from the run's seed, this process's name and ``resume_from``, so that no two are equal.

        Outside lock-step a later life of the name has others: what ended the one before need not come again.
        """
        own = f"{self.name} {self.plan.run.resume_from or ''}"
        words = [self.plan.run.seed, zlib.crc32(own.encode())]
        if self._name_lock.had_another and not self.plan.balance.in_order:
            words.append(self.incarnation)
        return np.random.SeedSequence(words)

    def on(self, kind: str, handler: Callable[[Mapping[str, Any]], None]) -> None:
        """Call ``handler(fields)`` on each control message of ``kind``, after earlier ones."""
        self._handlers.setdefault(kind, []).append(handler)

    def report(
        self,
        kind: str,
        fields: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
        files: Iterable[Path] = (),
    ) -> None:
        """Send one message to the broker. While the queue is full, a report is dropped and counted, and other
        messages wait for room.

        Args:
            kind, fields, arrays: of the message.
            files: those in the run's folder that it speaks of.
        """
        message = Message(kind, dict(fields), dict(arrays or {}), self.name, self.incarnation)
        self.handing.send(message, files)

    def hand_over(self, *files: Path) -> None:
        """Have the head get files in the run's folder, if that is on another machine."""
        self.handing.give(files)

    def fetch(self, word: str) -> None:
        """Have copies of files in the run's folder, if that is on another machine; see ``run.outbox``."""

        def go_on() -> bool:
            self.breathe()
            return self.running

        self.handing.fetch(word, go_on)

    def _send(self, message: Message) -> None:
        if self._outbox is None:
            self.hear_own(message)
        elif not self._outbox.post(message):
            self.reports_dropped += 1
            self.relist()

    def report_failure(self, summary: str, traceback: str, **more: Any) -> None:
        """Report a failure that this process has recovered from; it counts among the failures of the run."""
        self._failures.tell(summary, traceback, **more)

    # --- life

    @property
    def running(self) -> bool:
        """Whether nothing has asked this process to stop."""
        return not self.stop_reason

    def stop(self, reason: str) -> None:
        """Make ``running`` False; the first reason is kept."""
        self.stop_reason = self.stop_reason or reason

    def ready(self) -> None:
        """Report to the broker that this process is set up."""
        self._is_ready = True
        log.info("ready after %.1f s (pid %d, incarnation %d)", self.uptime_s, os.getpid(), self.incarnation)
        self._say_hello()
        self.send_report()

    def _say_hello_again(self, status: Mapping[str, Any]) -> None:
        if self._is_unheard(status):
            self._say_hello()

    def _say_hello(self) -> None:
        self._hello_s = time.monotonic()
        fields = {"role": self.role, "name": self.name, "pid": os.getpid(), "protocol": PROTOCOL_VERSION}
        self.report("hello", {**fields, "host": socket.gethostname()})

    def poll(
        self,
        readable: Collection[Any] = (),
        writable: Collection[Any] = (),
        *,
        timeout_s: float = 0.0,
        charge: Clock = "idle",
        waiting_for: str = "",
        draining: bool = False,
    ) -> set[Any]:
        """Wait on this process's channels; meanwhile handle control messages and send reports.

        Args:
            readable: channels to wait on for a message.
            writable: pushers to wait on for room.
            timeout_s: longest wait; 0 does not wait.
            charge: clock that the wait is charged to.
            waiting_for: which message is due from which peer; logged and reported when the wait is long.
            draining: wait although ``running`` is False.

        Returns:
            The channels that are ready; empty at the timeout, or after a stop without ``draining``.
        """
        began_s = now_s = self.waits.turn(charge)
        own = [*self._publishers, self._control] if self._control is not None else self._publishers
        listening = [*readable, *own]
        while True:
            until_s = min(began_s + timeout_s, self._next_report_s)
            ready: set[Any] = channels.poll(listening, writable, timeout_s=max(0.0, until_s - now_s))
            if ready:
                self._serve(ready)
                ready.difference_update(own)
            now_s = time.monotonic()
            if now_s >= self._next_report_s:
                self.send_report()
            if ready or now_s >= began_s + timeout_s or (self.stop_reason and not draining):
                break
        self.waits.turn("busy")
        if waiting_for:
            self.waits.note("" if ready else waiting_for, began_s)
        return ready

    def breathe(self, *, listens: bool = True) -> None:
        """Send a report if one is due, and handle control messages if it ``listens``; cheap to call often.

        Each call before :meth:`ready` also counts as a step of the start, which extends the start's deadline.
        """
        self.count_step()
        if time.monotonic() >= self._next_report_s:
            (self.poll if listens else self.send_report)()

    def send_report(self) -> None:
        """Send this process's figures, which are cumulative, so that a lost report loses nothing.

        Raises:
            InputError: the keys of this process differ from those at the other end of a channel.
        """
        self._next_report_s = time.monotonic() + REPORT_INTERVAL_S
        if self._watched is not None and not channels.SocketFolder.is_held(self._watched):
            self.stop_reason = self.stop_reason or ORPHANED
        self.handing.serve()
        for channel in self._channels.values():
            if hopeless := channel.attend():
                raise InputError(hopeless)
        self._failures.serve()
        for fields in self._reports():
            self.report("report", fields)

    def close(self, reason: str) -> None:
        """Send ``bye`` and close every channel; queued messages are sent within the linger time."""
        self.handing.close()
        if self._outbox is not None:
            self._outbox.patient_until_s = time.monotonic() + LAST_REPORTS_S
        self._failures.serve()
        *others, last = self._reports()
        for fields in others:
            self.report("report", fields)
        self.report("bye", {**last, "reason": reason})
        for channel in self._channels.values():
            channel.close()
        channels.terminate()

    def restore_point(self) -> SavedCheckpoint | None:
        """The checkpoint to restore: this run's last complete one, else the one in ``resume_from``. Reports
        go on while its files are verified; each that was passed over is a failure. Raises CheckpointError.
        """
        if self.handing.is_elsewhere:
            self.fetch(CHECKPOINT)
            prune(self.folder.checkpoints, 1)
        where = self.folder.checkpoints, self.plan.run.resume_from
        found, skipped = reporting_while(self, partial(restore_point, *where))
        for line in skipped:
            log.warning("%s", line)
            self.report_failure(line, "")
        return found

    def _serve(self, ready: set[Any]) -> None:
        for publisher in self._publishers:
            if publisher in ready:
                publisher.serve()
        if self._control is not None and self._control in ready:
            while (message := self._control.receive()) is not None:
                if message.incarnation != self._broker:  # a restarted broker has not received our hello
                    if self._broker is not None:
                        self.relist()
                    if self._broker is not None and self._is_ready:
                        self._say_hello()
                    self._broker = message.incarnation
                for handler in self._handlers.get(message.kind, ()):
                    handler(message.fields)

    def _on_stop(self, fields: Mapping[str, Any]) -> None:
        roles = set(fields["roles"])
        self.stopping_roles |= roles
        if self.role in roles or "*" in roles:
            self.stop(fields["reason"])
