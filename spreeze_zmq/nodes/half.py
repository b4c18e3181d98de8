"""A node's half: joins a run, joins it again where the head was out of reach, and ends with it."""

from __future__ import annotations

import select
import signal
import sys
import time

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.endpoints import Keys
from spreeze_zmq.base.machine import allow_open_files, available_cores
from spreeze_zmq.nodes.head import HEAD_LOST, OVER
from spreeze_zmq.nodes.load import is_closed
from spreeze_zmq.nodes.membership import Left, Membership
from spreeze_zmq.nodes.relay import PATIENCE_S, Relays
from spreeze_zmq.wire.channels import SocketFolder

#: Why a machine leaves whose ssh client is gone.
UNREAD = "nobody reads its output any more"


class Half:
    """One machine of a run, from its ``join`` to its end.

    Args:
        head: the address of the channel, ``tcp://HOST:PORT``.
        invitation: opens that channel.
        samplers: the most to run here; None for as many as the head finds right.
    """

    def __init__(self, head: str, invitation: Keys, samplers: int | None = None) -> None:
        self.head, self.invitation = head, invitation
        self.cores = available_cores()
        self.most = samplers
        self.node, self.stop_reason = "", ""
        self.relays = Relays()
        self.until_s = time.monotonic() + PATIENCE_S
        self._output = select.poll()
        self._output.register(sys.stdout.fileno(), 0)

    @property
    def free_cores(self) -> int:
        """The cores for a learner here: those that samplers cannot take, or half of them."""
        return self.cores - (self.cores // 2 if self.most is None else min(self.most, self.cores))

    def run(self) -> int:
        """Take part until the run is over, or the head is; returns the exit code."""
        allow_open_files()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        SocketFolder.sweep()
        while True:
            try:
                Membership(self).live()
            except Left as left:
                self.say(f"{left}")
                if left.code != HEAD_LOST or left.for_good or not self._comes_back():
                    return left.code

    def check_wanted(self) -> None:
        """Raise Left if this process was asked to stop, or nobody reads what it says any more: the ssh client
        that started it is gone.
        """
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in self._output.poll(0)):
            self.stop_reason = self.stop_reason or UNREAD
        if self.stop_reason:
            raise Left(OVER, f"left the run: {self.stop_reason}")

    def _on_signal(self, number: int, frame: object) -> None:
        self.stop_reason = self.stop_reason or signal.Signals(number).name

    def say(self, line: str) -> None:
        """Print a line, if anybody reads it."""
        try:
            say(line, flush=True)
        except OSError:
            self.stop_reason = self.stop_reason or UNREAD

    def _comes_back(self) -> bool:
        """Wait until the head's machine can be reached; False if nobody listens there, or if this machine has
        not been part of the run for too long.
        """
        while (closed := is_closed(self.head)) is None and self._is_patient:
            time.sleep(0.2)
        return closed is False and self._is_patient

    @property
    def _is_patient(self) -> bool:
        return time.monotonic() < self.until_s and not self.stop_reason
