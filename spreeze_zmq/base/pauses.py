"""Whether this process stood still: a laptop that sleeps, a container that is paused, a stopped process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.base.journal import time_of

#: A loop that turns many times a second and has not for so long stood still.
STOOD_STILL_S = 5.0


class Pauses:
    """Looks at the clock in each turn of a loop.

    Args:
        clock: monotonic seconds.

    Attributes:
        all_s: seconds of all pauses so far.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_s, self.all_s = clock, clock(), 0.0

    def look(self) -> float:
        """The seconds since the last look, where the loop stood still; else 0."""
        now_s = self._clock()
        passed_s, self._last_s = now_s - self._last_s, now_s
        stood_s = passed_s if passed_s > STOOD_STILL_S else 0.0
        self.all_s += stood_s
        return stood_s

    def awake_s(self) -> float:
        """The time of the clock without the pauses: a wait by it is no shorter where the machine slept."""
        return self._clock() - self.all_s


class RunTime:
    """The time of the run, which leaves out that in which all stood still: as the broker says, and this
    process's own from there to the next status; all its own while it hears of none.

    Args:
        clock: monotonic seconds.

    Attributes:
        hears_broker: whether a status was heard, from which on the time is the run's.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._heard_s, self._time_s, self.hears_broker = clock, clock(), 0.0, False

    def hear(self, status: Mapping[str, Any]) -> None:
        """Note the time of the run, as a status of the broker has it."""
        if (t_s := time_of(status)) is not None:
            self._time_s, self._heard_s, self.hears_broker = t_s, self._clock(), True

    def begin_at(self, time_s: float) -> None:
        """Begin no earlier than here, before a broker is heard."""
        self._time_s = max(self._time_s, time_s)

    def now_s(self) -> float:
        """With the time since the broker was heard, of which much may be a pause."""
        since_s = self._clock() - self._heard_s
        return self._time_s + (min(since_s, STOOD_STILL_S) if self.hears_broker else since_s)
