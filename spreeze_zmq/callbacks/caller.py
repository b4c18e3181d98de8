"""Calls one callback in a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from spreeze_zmq.base.errors import in_one_line, place_of
from spreeze_zmq.callbacks.callback import Callback, LiveRun
from spreeze_zmq.callbacks.events import Event

#: Events that wait for a callback, at most; of statuses the newest waits.
MOST_WAITING = 1000
#: A call that takes longer is named.
SLOW_S = 5.0
STATUS = "on_status"


class Caller:
    """One callback and the events that wait for it.

    Args:
        callback: called from this object's thread alone.
        run: its run.
        say: called with a line about the callback.
        fail: called with the line of what it raised, and the traceback.

    Attributes:
        dropped: events that found no place.
        end_s: seconds that it has at the end.
    """

    def __init__(
        self,
        callback: Callback,
        run: LiveRun,
        say: Callable[[str], None],
        fail: Callable[[str, str], None],
    ) -> None:
        self._callback, self._run, self._say, self._fail = callback, run, say, fail
        self._waiting: deque[tuple[str, Event]] = deque()
        self._news = threading.Condition()
        self._is_last = self._is_slow = False
        self._calls = ""
        self._since_s = 0.0
        self.dropped, self.end_s = 0, float(callback.end_s)
        self._thread = threading.Thread(target=self._work, name=f"callback {run.who}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return self._run.who

    def hears(self, method: str) -> bool:
        """Whether the callback overrides a method, in its class or as an attribute."""
        found = getattr(self._callback, method)
        return getattr(found, "__func__", found) is not getattr(Callback, method)

    def hand(self, method: str, event: Event, *, last: bool = False) -> None:
        """Have a method called with an event, after those that wait; nothing follows the last one."""
        self._look_how_slow()
        if not self.hears(method) and not last:
            return
        with self._news:
            if method == STATUS:  # in the place of the one that waits
                self._waiting = deque(each for each in self._waiting if each[0] != STATUS)
            if len(self._waiting) < MOST_WAITING or method == STATUS or last:
                self._waiting.append((method, event))
            else:
                self.dropped += 1
            self._is_last = last
            self._news.notify()

    def _look_how_slow(self) -> None:
        """Say once that it is slow."""
        since_s, calls = time.monotonic() - self._since_s, self._calls
        if self._is_slow or not calls or (since_s < SLOW_S and not self.dropped):
            return
        self._is_slow = True
        self._say(
            f"{calls} has taken {since_s:.0f} s by now; the newest status waits for it, and at most "
            f"{MOST_WAITING:,} other events"
        )

    def still_does(self, wait_s: float) -> str:
        """What it still does after another wait, in words; empty where the last event has been taken."""
        self._thread.join(wait_s)
        return f"{self._calls} has not returned" if self._thread.is_alive() else ""

    def if_left(self) -> str:
        """What becomes of what it has not done, by its own words; may be empty."""
        return str(self._callback.if_left).replace("{folder}", str(self._run.folder))

    def _work(self) -> None:
        while (found := self._next()) is not None:
            method, event = found
            self._since_s, self._calls = time.monotonic(), method
            try:
                getattr(self._callback, method)(self._run, event)
            except BaseException as error:  # whatever a user's code raises, SystemExit too
                self._give_up(method, error)
                return
            self._calls = ""

    def _next(self) -> tuple[str, Event] | None:
        """The next event, waited for; None after the last one."""
        with self._news:
            while not self._waiting and not self._is_last:
                self._news.wait()
            return self._waiting.popleft() if self._waiting else None

    def _give_up(self, method: str, error: BaseException) -> None:
        line = f"is called no more: {method} raised {in_one_line(error)} [{place_of(error)}]"
        with self._news:
            self._waiting.clear()
        self.hand = _ignore  # type: ignore[method-assign]
        self._fail(line, "".join(traceback.format_exception(error)))
        self._calls = ""


def _ignore(*_: Any, **named: Any) -> None:
    """Take what nobody hears any more."""
