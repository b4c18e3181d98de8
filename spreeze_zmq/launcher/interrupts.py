"""Counts the signals by which a user, a terminal or a service manager asks the launcher to stop."""

from __future__ import annotations

import signal


class Interrupts:
    """The stop requests so far: the second one ends waits, the third one also the wait for the broker.

    Attributes:
        count: number of requests.
        by: who asked, in words.
    """

    def __init__(self) -> None:
        self.count, self.by = 0, "the user"

    def heed(self) -> None:
        """Handle the signals of this process; to be called in its main thread."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signal.SIGHUP, self._on_signal)

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:  # a shell and the kernel may both send it: together one request
            self.count = max(1, self.count)
            self.by = "the end of its terminal"
        else:
            self.count += 1
