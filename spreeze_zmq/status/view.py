"""Shows the status: redrawn in place in a terminal, a line every few seconds everywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from spreeze_zmq.status.drawing import plain_line, table

PLAIN_INTERVAL_S = 5.0


class StatusView:
    """Shows a run and notes about it on a console.

    Args:
        console: by default standard output.
        clock: monotonic seconds.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._status: Mapping[str, Any] | None = None
        self._written_s = -math.inf
        self._written_state = ""
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False)

    def update(self, status: Mapping[str, Any]) -> None:
        """Show a :class:`Status`; a plain line only after ``PLAIN_INTERVAL_S`` or a change of its state."""
        self._status = status
        if self._live is not None:
            if not self._live.is_started:
                self._live.start()
            self._live.update(table(status), refresh=True)
        elif status["state"] != self._written_state or self._clock() - self._written_s >= PLAIN_INTERVAL_S:
            self._write_line(status)

    def note(self, line: str) -> None:
        """Print a line, such as a restart or a change of worker counts; it stays above the table."""
        if self._live is not None:
            self._console.print(Text(line))
        else:
            self._print(f"note {line}")

    def close(self) -> None:
        """Leave the last figures on the screen and restore the terminal."""
        if self._live is not None:
            self._live.stop()
        elif self._status is not None:
            self._write_line(self._status)
        self._status = None

    def _write_line(self, status: Mapping[str, Any]) -> None:
        self._written_s, self._written_state = self._clock(), status["state"]
        self._print(plain_line(status))

    def _print(self, line: str) -> None:
        # Never wrapped, however narrow the console is.
        self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)
