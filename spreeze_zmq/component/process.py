"""A process of the run apart from its channels: its name, its time and what it waits for, its recording."""

from __future__ import annotations

import itertools
import json
import logging
import time
from pathlib import Path
from typing import Literal, get_args

from spreeze_zmq.base.errors import ChannelError, InputError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import channels
from spreeze_zmq.wire.channels import RecordingWriter

#: A wait is reported after ``REPORTED_WAIT_S`` and logged after ``PATIENCE_S``.
REPORTED_WAIT_S, PATIENCE_S = 1.0, 5.0

log = logging.getLogger("spreeze")

Clock = Literal["busy", "blocked", "starved", "idle"]


class Waits:
    """The clocks of one process; exactly one of them runs at any time.

    Attributes:
        clock_s: seconds spent ``busy``, ``blocked`` (a peer does not take messages), ``starved`` (a peer does
            not send any) and ``idle``, up to the last :meth:`turn`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.clock_s: dict[Clock, float] = dict.fromkeys(get_args(Clock), 0.0)
        self._runs: Clock = "busy"
        self._turned_s = time.monotonic()
        self._for, self._since_s, self._complained = "", 0.0, False

    def turn(self, clock: Clock | None = None) -> float:
        """Have another clock run, by default the one that does; returns the time of the monotonic clock."""
        now_s = time.monotonic()
        self.clock_s[self._runs] += now_s - self._turned_s
        self._runs, self._turned_s = clock or self._runs, now_s
        return now_s

    def note(self, waiting_for: str, began_s: float) -> None:
        """Note what this process waits for; empty for nothing. A new wait counts from ``began_s``."""
        if waiting_for != self._for:
            if self._complained:
                log.info("no longer waiting for %s", self._for)
            self._for, self._since_s, self._complained = waiting_for, began_s, False
        elif waiting_for and not self._complained and self._waited_s > PATIENCE_S:
            self._complained = True
            log.warning("%s has waited %.0f s for %s", self._name, PATIENCE_S, waiting_for)

    @property
    def owed(self) -> str:
        """What this process waits for, in words; empty while the wait is short."""
        return self._for if self._waited_s > REPORTED_WAIT_S else ""

    @property
    def _waited_s(self) -> float:
        return time.monotonic() - self._since_s if self._for else 0.0


def claim_name(role: str, index: int | None, plan: Plan, incarnation: int) -> tuple[int, channels.Claim]:
    """Lock ``ROLE-INDEX`` for this life of it; returns the index and the lock.

    Without an index, take the first free one that the launcher does not use for its own processes.

    Raises:
        InputError: the run is over.
        ChannelError: another process has that name, or none can be locked.
    """
    sockets, own = Path(plan.socket_dir), plan.components[role]
    if not sockets.is_dir():
        raise InputError(
            f"the run is over: its socket folder {sockets} is gone; "
            "start it again, or give a topology instead"
        )
    if index is not None:
        return index, channels.Claim.take(sockets / f"{role}-{index}", incarnation)
    for free in itertools.count(own.count.maximum if own.launched else 0):
        try:
            return free, channels.Claim.take(sockets / f"{role}-{free}", incarnation)
        except ChannelError as error:
            if error.__cause__ is not None:  # nobody has it: no name can be locked
                raise
    raise AssertionError("unreachable")


def limit_of(plan: Plan, role: str, index: int) -> float | None:
    """Largest size of a process's recording in 10^6 bytes; None if the process is not recorded."""
    return plan.recording.get(f"{role}-{index}", plan.recording.get(role))


def begin_recording(
    plan: Plan, role: str, index: int, incarnation: int, limit_mb: float, *, mirrored: bool = False
) -> RecordingWriter:
    """A new recording of the process ``ROLE-INDEX`` in the run's folder.

    Args:
        plan: the run's plan, stored in the header.
        role: role of the process.
        index: index of the process.
        incarnation: incarnation of the process.
        limit_mb: largest size of the recording in 10^6 bytes.
        mirrored: the caller is not the process but its peer.

    Raises:
        InputError: the file cannot be written.
    """
    about = {"name": f"{role}-{index}", "role": role, "index": index, "incarnation": incarnation}
    about |= {"channels": list(plan.components[role].channels), "plan": json.loads(plan.to_json())}
    return RecordingWriter(RunFolder(Path(plan.run_dir)).recordings, about, limit_mb, mirrored=mirrored)
