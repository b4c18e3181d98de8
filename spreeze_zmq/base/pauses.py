"""Whether this process stood still: a laptop that sleeps, a container that is paused, a stopped process."""

from __future__ import annotations

import time
from collections.abc import Callable

#: A loop that turns many times a second and has not for so long stood still.
STOOD_STILL_S = 5.0


class Pauses:
    """Looks at the clock in each turn of a loop.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_s = clock, clock()

    def look(self) -> float:
        """The seconds since the last look, where the loop stood still; else 0."""
        now_s = self._clock()
        passed_s, self._last_s = now_s - self._last_s, now_s
        return passed_s if passed_s > STOOD_STILL_S else 0.0
