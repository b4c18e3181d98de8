"""Failures of environments while they are stepped: each logged and counted, too many raised."""

from __future__ import annotations

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spreeze_zmq.errors import EnvironmentFailure

log = logging.getLogger("spreeze.envs")

#: Seconds over which failures are counted.
WINDOW_S = 60.0
#: Characters kept of a traceback: the last ones, which name the place.
TRACEBACK_CHARS = 20_000


@dataclass(frozen=True)
class Failure:
    """One environment that raised, hung, was killed or gave a number that is not finite.

    Attributes:
        summary: one line that names the environment and the step.
        traceback: the environment's own; empty where there is none.
    """

    summary: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.summary}\n{self.traceback}".rstrip()


class Failures:
    """Logs each failure and raises when there are too many.

    Args:
        max_failures: failures within ``WINDOW_S`` that are tolerated; the next one is raised.
        on_failure: called with each tolerated failure, besides the log.

    Attributes:
        count: failures so far.
    """

    def __init__(self, max_failures: int, on_failure: Callable[[Failure], None] | None = None):
        self.max_failures = max_failures
        self.on_failure = on_failure
        self.count = 0
        self._recent: deque[tuple[float, Failure]] = deque()

    def note(self, failure: Failure, cause: BaseException | None = None) -> None:
        """Count one more failure.

        Raises:
            EnvironmentFailure: there were too many; holds the traceback of the first in the window.
        """
        now_s = time.monotonic()
        self.count += 1
        self._recent.append((now_s, failure))
        while self._recent[0][0] < now_s - WINDOW_S:
            self._recent.popleft()
        if len(self._recent) > self.max_failures:
            raise EnvironmentFailure(self._too_many(cause)) from cause
        log.error("%s; its episode is truncated and the next one begins", failure)
        if self.on_failure is not None:
            self.on_failure(failure)

    @contextmanager
    def none_tolerated(self) -> Iterator[None]:
        """Raise the first failure within the block: there is no running episode to truncate."""
        allowed, self.max_failures = self.max_failures, 0
        try:
            yield
        finally:
            self.max_failures = allowed

    def _too_many(self, cause: BaseException | None) -> str:
        first = self._recent[0][1]
        if len(self._recent) == 1:  # a cause has the traceback already
            return str(first) if cause is None else first.summary
        return (
            f"{first.summary}; {len(self._recent)} failures within {WINDOW_S:.0f} s, of which this was the"
            f" first, and at most {self.max_failures} are tolerated\n{first.traceback}"
        ).rstrip()


def traceback_of(error: BaseException) -> str:
    """The formatted traceback of an error, at most its last ``TRACEBACK_CHARS`` characters."""
    return "".join(traceback.format_exception(error))[-TRACEBACK_CHARS:]
