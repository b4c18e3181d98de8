"""Measures how a process spends its time, and notes what it waits for."""

from __future__ import annotations

import logging
import time
from typing import Literal

#: A wait is reported after ``REPORTED_WAIT_S`` and logged after ``PATIENCE_S``.
REPORTED_WAIT_S, PATIENCE_S = 1.0, 5.0

log = logging.getLogger("spreeze")

Charge = Literal["blocked", "starved", "idle"]


class Waits:
    """The clocks of one process; exactly one of them runs at any time.

    Attributes:
        clock_s: seconds spent ``busy``, ``blocked`` (a peer does not take messages), ``starved`` (a peer does
            not send any) and ``idle``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.clock_s = {"busy": 0.0, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
        self._awake_s = time.monotonic()
        self._for, self._since_s, self._complained = "", 0.0, False

    def begin(self) -> float:
        """Start a wait; returns the time of the monotonic clock."""
        began_s = time.monotonic()
        self.clock_s["busy"] += began_s - self._awake_s
        return began_s

    def end(self, began_s: float, now_s: float, charge: Charge) -> None:
        """End a wait and charge it to the clock ``charge``."""
        self.clock_s[charge] += now_s - began_s
        self._awake_s = now_s

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
