"""Failures of environments during a step: each is logged and counted; more than tolerated raise an error."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.base.errors import (
    EnvironmentFailure,
    in_one_line,
    kind_of,
    let_interrupts_pass,
    place_of,
)

log = logging.getLogger("spreeze.envs")

#: The last episodes, over which failures are counted, and those of them that are tolerated by default.
WINDOW, TOLERATED = 100, 10
#: Failures that are logged as they are, and kinds of which the first one is, too; the others are counted by a
#: line at most once in so many seconds.
LOGGED, KINDS, LINE_S = 100, 50, 60.0
#: Characters kept of a traceback: the last ones, which name the place.
TRACEBACK_CHARS = 20_000
#: Characters kept of a summary: the first ones, and the last ones, which name the place.
SUMMARY_CHARS, PLACE_CHARS = 4000, 1000


@dataclass(frozen=True)
class EnvironmentFault:
    """One environment that raised, hung, was killed or returned what it may not.

    Attributes:
        summary: one line that names the environment and the step.
        traceback: the environment's own; empty if it did not raise.
        mild: it costs its episode, however many there are: the environment itself has not failed.
    """

    summary: str
    traceback: str = ""
    mild: bool = False

    def __str__(self) -> str:
        return f"{self.summary}\n{self.traceback}".rstrip()


class SparingLog:
    """Logs what may come as often as an environment is stepped, for weeks.

    Args:
        clock: monotonic seconds.
        level: of its lines, as logging has them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, level: int = logging.ERROR) -> None:
        self._clock, self._level, self._kinds = clock, level, set[str]()
        self._count, self._unlogged, self._next_s = 0, 0, -math.inf

    def take(self, summary: str, whole: str) -> None:
        """Log the ``whole`` of what comes first and of each new kind, else the ``summary`` now and then."""
        kind, now_s = kind_of(summary), self._clock()
        self._count += 1
        is_new = kind not in self._kinds and len(self._kinds) < KINDS
        if is_new or self._count <= LOGGED:
            self._kinds.add(kind)
            log.log(self._level, "%s", whole)
            return
        self._unlogged += 1
        if now_s >= self._next_s:
            log.log(self._level, "%s; with it %d more since the last line", summary, self._unlogged)
            self._unlogged, self._next_s = 0, now_s + LINE_S


class Failures:
    """Logs and counts failures, and raises an error when there are too many.

    Args:
        max_failures: failures within ``WINDOW`` episodes that are tolerated; the next one is raised.
        on_failure: called with each tolerated failure, besides the log.
        clock: monotonic seconds.

    Attributes:
        count: failures so far.
        episodes: episodes that have ended so far, failed ones included.
    """

    def __init__(
        self,
        max_failures: int,
        on_failure: Callable[[EnvironmentFault], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_failures, self.on_failure, self._log = max_failures, on_failure, SparingLog(clock)
        self.count = self.episodes = 0
        self._recent: deque[tuple[int, EnvironmentFault]] = deque()

    def note(
        self, summary: str, cause: BaseException | None = None, traceback: str = "", *, mild: bool = False
    ) -> None:
        """Log and count one failure.

        Args:
            summary: as of ``EnvironmentFault``.
            cause: the environment's exception, if it raised in this process.
            traceback: the environment's own, if it raised in another process.
            mild: as of ``EnvironmentFault``.

        Raises:
            EnvironmentFailure: there are too many; holds the traceback of the first in the window.
        """
        trace = traceback if cause is None else traceback_of(cause)
        failure = EnvironmentFault(shortened(printable(summary)), printable(trace), mild)
        self.count += 1
        if not mild:
            self._recent.append((self.episodes, failure))
        while self._recent and self._recent[0][0] <= self.episodes - WINDOW:
            self._recent.popleft()
        if len(self._recent) > self.max_failures:
            raise EnvironmentFailure(self._too_many(cause)) from cause
        self._log.take(failure.summary, f"{failure}; its episode is truncated and the next one begins")
        if self.on_failure is not None:
            self.on_failure(failure)

    @contextmanager
    def none_tolerated(self) -> Iterator[None]:
        """Raise the first failure within the block: an environment that cannot begin at all."""
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
            f"{first.summary}; {len(self._recent)} failures within {WINDOW} episodes, of which this was the"
            f" first, and at most {self.max_failures} are tolerated (max_failures)\n{first.traceback}"
        ).rstrip()


def traceback_of(error: BaseException) -> str:
    """The formatted traceback of an error, at most its last ``TRACEBACK_CHARS`` characters."""
    return "".join(traceback.format_exception(error))[-TRACEBACK_CHARS:]


def shortened(text: str) -> str:
    """A summary of at most ``SUMMARY_CHARS`` characters."""
    if len(text) <= SUMMARY_CHARS:
        return text
    return f"{text[: SUMMARY_CHARS - PLACE_CHARS - 5]} ... {text[-PLACE_CHARS:]}"


def printable(text: str) -> str:
    """A text that every terminal, file and message can hold: halves of characters are replaced."""
    return text.encode(errors="backslashreplace").decode()


def close(env: Any) -> str:
    """Close an environment, or a batch of them; returns what it raised, in one line, or ""."""
    try:
        env.close()
    except BaseException as error:
        let_interrupts_pass(error)
        return f"close() raised {in_one_line(error)} [{place_of(error)}]"
    return ""
