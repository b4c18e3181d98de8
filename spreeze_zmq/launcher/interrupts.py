"""The signals by which a user, a terminal or a service manager asks the launcher to stop, or to pause."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Collection

from spreeze_zmq.base.errors import interrupt
from spreeze_zmq.plan.roles import HURRIED_S, OBSERVER


def give_back() -> None:
    """Let each of these signals that is not ignored end or suspend this process, as where no run heeds it."""
    signal.signal(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


class Interrupts:
    """The stop requests so far: the second one ends waits, the third one also the wait for the broker.

    Attributes:
        count: number of requests.
        by: who asked, in words.
        suspends: Ctrl-Z was pressed, and :meth:`suspend` has not been called since.
    """

    def __init__(self) -> None:
        self.count, self.by, self.suspends = 0, "the user", False

    def heed(self) -> None:
        """Handle the signals of this process; to be called in its main thread."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signal.SIGHUP, self._on_signal)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:  # as a shell without job control has it
            signal.signal(signal.SIGTSTP, self._on_suspend)

    def grace_s(self, roles: Collection[str]) -> float:
        """Most seconds that processes of these roles have to end by now."""
        return HURRIED_S if self.count and OBSERVER in roles else math.inf

    def suspend(self) -> float:
        """Stop this process until it is continued, as its terminal asks; returns the seconds that took."""
        self.suspends, began_s = False, time.monotonic()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_suspend)
        return time.monotonic() - began_s

    def _on_suspend(self, *_: object) -> None:
        self.suspends = True

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:  # a shell and the kernel may both send it: together one request
            self.count = max(1, self.count)
            self.by = "the end of its terminal"
        else:
            self.count += 1
