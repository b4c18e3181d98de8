"""What becomes of an environment that fails while it is stepped: told once, mended, and not for ever."""

from __future__ import annotations

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import EnvironmentFailure

log = logging.getLogger("spreeze.envs")

#: Failures are counted over so many seconds.
WINDOW_S = 60.0
#: Tracebacks are kept to so many characters, the last ones, which name the place.
TRACEBACK_CHARS = 20_000


@dataclass(frozen=True)
class Failure:
    """One environment that raised, hung, was killed or gave what is not finite.

    Attributes:
        summary: one line that names the environment and the step.
        traceback: the environment's own; empty where there is none.
    """

    summary: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.summary}\n{self.traceback}".rstrip()


class Failures:
    """Tells of each failure and raises when there are too many.

    Args:
        max_failures: so many within ``WINDOW_S`` are mended; the next one is raised. 0 raises the first.
        on_failure: called with each one that is mended, besides the log.
        clock_s: a monotonic clock.
    """

    def __init__(
        self,
        max_failures: int,
        on_failure: Callable[[Failure], None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ):
        self.max_failures = max_failures
        self.on_failure = on_failure
        self.count = 0
        self._clock_s = clock_s
        self._recent: deque[tuple[float, Failure]] = deque()

    def note(self, failure: Failure, cause: BaseException | None = None) -> None:
        """One more failure.

        Raises:
            EnvironmentFailure: there were too many; holds the first one's traceback.
        """
        now_s = self._clock_s()
        self.count += 1
        self._recent.append((now_s, failure))
        while self._recent[0][0] < now_s - WINDOW_S:
            self._recent.popleft()
        if len(self._recent) > self.max_failures:
            raise EnvironmentFailure(self._too_many(cause)) from cause
        log.error("%s; its episode is cut off and it begins anew", failure)
        if self.on_failure is not None:
            self.on_failure(failure)

    def _too_many(self, cause: BaseException | None) -> str:
        first = self._recent[0][1]
        if len(self._recent) == 1:  # a cause has the traceback already
            return str(first) if cause is None else first.summary
        return (
            f"{first.summary}; {len(self._recent)} failures within {WINDOW_S:.0f} s, of which this was the"
            f" first, and {self.max_failures} are mended at most\n{first.traceback}"
        ).rstrip()


def traceback_of(error: BaseException) -> str:
    """The traceback of an error in words, its end where it is long."""
    return "".join(traceback.format_exception(error))[-TRACEBACK_CHARS:]
