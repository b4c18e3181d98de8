"""What the supervisor has seen of its processes: how one ended, that it was restarted or given up."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from pathlib import Path

#: A process that survives SIGKILL this long hangs in the kernel (a driver, a dead disk) and is given up.
UNKILLABLE_S = 10.0


@dataclass(frozen=True)
class Exited:
    """A process has ended.

    Attributes:
        name: the process.
        pid: its process id, on its machine.
        code: exit code; None where a signal ended it.
        signal: the signal that ended it; None where it exited.
        expected: whether it was asked to stop.
        killed: whether SIGKILL was sent to it from here.
        overdue: likewise, because ``stop_grace_s`` had passed.
        restarting: whether it will be restarted.
        words: its traceback or last lines; empty where it ended as it was asked to.
        log_path: its whole log.
        lived_s: seconds from its start.
    """

    name: str
    pid: int
    code: int | None
    signal: int | None
    expected: bool
    killed: bool
    overdue: bool
    restarting: bool
    words: str
    log_path: Path
    lived_s: float

    @property
    def heeds_sigterm(self) -> bool:
        """Whether it ended as a sound program does at SIGTERM: also one without a handler for it, or a shell
        whose own program was ended so.
        """
        return self.signal == signal.SIGTERM or self.code in (0, 128 + signal.SIGTERM)

    @property
    def is_fault(self) -> bool:
        """Whether it ended otherwise than it was asked to, or unasked."""
        return not (self.expected and (self.heeds_sigterm or self.killed))

    @property
    def is_told(self) -> bool:
        """Whether it ended by the SIGKILL that was sent from here unasked, and the reason was told then."""
        return self.killed and not self.expected and self.signal == signal.SIGKILL

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.code == 0 and not self.expected:
            return "left with code 0 although nothing here asked it to (a SIGTERM from elsewhere?)"
        if self.code is not None:
            return f"exited with code {self.code}"
        if self.signal is None:
            return f"hangs in the kernel: SIGKILL has not ended it in {UNKILLABLE_S:.0f} s"
        return f"was killed by {signal_name(self.signal)}"

    def __str__(self) -> str:
        return f"{self.name} {self.how} after {self.lived_s:.1f} s"


@dataclass(frozen=True)
class Restarted:
    """A process was restarted ``delay_s`` after its unexpected end; ``attempt`` counts within the window."""

    name: str
    attempt: int
    delay_s: float

    def __str__(self) -> str:
        return f"{self.name} started again (restart {self.attempt}, after {self.delay_s:.1f} s)"


@dataclass(frozen=True)
class GaveUp:
    """A process has crashed too often, or cannot be started, be it for the first time or again."""

    name: str
    reason: str
    has_begun: bool = True

    def __str__(self) -> str:
        what = "is not started again" if self.has_begun else "cannot be started"
        return f"{self.name} {what}: {self.reason}"


@dataclass(frozen=True)
class Unwanted:
    """A process that had crashed was asked to stop before its restart: it does not come back."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} is not wanted any more"


@dataclass(frozen=True)
class Printed:
    """The first output of a process, such as a ``print`` of its environment, is in its log."""

    name: str
    log_path: Path


Event = Exited | Restarted | GaveUp | Unwanted | Printed


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 35`` for a real-time signal, which has no name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
