"""All callbacks of one process: what the feed says goes to each, what they ask for goes to the broker."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.requests import NOTE, STOP
from spreeze_zmq.broker.validation import LONGEST_TEXT as LONGEST_TRACE
from spreeze_zmq.callbacks.callback import Callback, LiveRun
from spreeze_zmq.callbacks.caller import Caller
from spreeze_zmq.callbacks.events import Story
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import SIGNALLED
from spreeze_zmq.wire.channels import Subscriber

log = logging.getLogger("spreeze")

#: Requests that wait to be sent, at most, and those that one call of ``serve`` sends.
MOST_ASKED, SENT_AT_ONCE = 1000, 50
#: Longest wait for one callback before the process breathes.
SLICE_S = 0.05

#: Sends a message to the broker: its kind and fields.
Post = Callable[[str, Mapping[str, Any]], None]


class Observers:
    """Calls the callbacks of a run, each in a thread of its own; belongs to the thread that opened ``feed``.

    Args:
        plan: of the run.
        callbacks: whom to call.
        feed: what the broker writes down of the run.
        post: sends a message to the broker.
        name: under which failures of the callbacks are reported.
        level: at which failures and slow callbacks are logged here, which the run shows too.
    """

    def __init__(
        self,
        plan: Plan,
        callbacks: Iterable[Callback],
        feed: Subscriber,
        post: Post,
        name: str,
        level: int = logging.INFO,
    ) -> None:
        self._story, self._feed, self._post, self._name = Story(plan), feed, post, name
        self._level = level
        self._asked: deque[Mapping[str, Any]] = deque()
        self._failed: deque[Mapping[str, Any]] = deque()
        self._exited: set[Any] = set()
        self._stopping: dict[str, Mapping[str, Any]] = {}
        self._broker, self._is_ending = 0, False
        self._unasked = 0
        self._callers = []
        for callback, who in zip(callbacks := tuple(callbacks), names_of(callbacks), strict=True):
            run = LiveRun(Path(plan.run_dir), plan, who, self._ask)
            about = partial(self._say, who), partial(self._fail, who)
            self._callers.append(Caller(callback, run, *about))
        started = self._story.started()
        for caller in self._callers:
            caller.hand("on_started", started)

    def serve(self) -> bool:
        """Hand out what has come and send what was asked for; returns whether anything has come."""
        came = False
        while (message := self._feed.receive()) is not None:
            came = True
            fields = message.fields
            self._meet(message.incarnation, ends=fields.get("topic") == "end")
            try:
                if fields["topic"] == "exited" and not fields["about"].get("restarting"):
                    self._exited.add(fields["about"].get("name"))
                elif fields["topic"] == "hello":
                    self._exited.discard(fields["about"].get("name"))
                for method, event in self._story.calls(fields["topic"], fields["t_s"], fields["about"]):
                    for caller in self._callers:
                        caller.hand(method, event)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                what = f"{fields['topic']!r:.40} cannot be told: {type(error).__name__}: {error}"
                self._feed.refuse(WireError("bad_entry", what), message.sender, message.kind)
        self._send()
        return came

    def _meet(self, broker: int, *, ends: bool) -> None:
        """Ask a broker that follows another to stop again, unless the run ends already: the one before may
        have died before it read that.
        """
        self._is_ending = self._is_ending or ends
        if self._broker not in (0, broker) and not self._is_ending:
            self._asked.extend(list(self._stopping.values()))
        self._broker = broker

    def _send(self) -> None:
        while self._failed:
            self._post("failure", self._failed.popleft())
        for _ in range(min(SENT_AT_ONCE, len(self._asked))):
            self._post("request", self._asked.popleft())

    def has_seen_end_of(self, name: str) -> bool:
        """Whether the feed has said that a process has ended, and is not started again."""
        return name in self._exited

    @property
    def is_interrupted(self) -> bool:
        """Whether the feed has said that a signal ends the run."""
        return self._story.ended().reason.startswith(tuple(SIGNALLED.values()))

    def finish(self, breathe: Callable[[], object] = lambda: None, most_s: float = math.inf) -> None:
        """Tell the callbacks that the run is over, and wait for each until its ``end_s``.

        Args:
            breathe: called meanwhile, several times a second.
            most_s: longest wait for all of them.
        """
        ended, began_s = self._story.ended(), time.monotonic()
        for caller in self._callers:
            caller.hand("on_ended", ended, last=True)
        waited = {caller: min(caller.end_s, most_s) for caller in self._callers}
        while any(
            time.monotonic() < began_s + wait_s and caller.still_does(SLICE_S)
            for caller, wait_s in waited.items()
        ):
            breathe()
        for caller, wait_s in waited.items():
            if still := caller.still_does(0.0):
                then = f"; {found}" if (found := caller.if_left()) else ""
                self._say_last(caller.name, f"{still} {wait_s:.0f} s after the end: it is left{then}")
            if caller.dropped:
                self._say_last(caller.name, f"was too slow, and has missed {caller.dropped} events")
        if self._unasked:
            self._say_last("callbacks", f"asked for too much: {self._unasked} requests were left out")
        if self._feed.missed > 0:
            self._say_last("callbacks", f"have missed {self._feed.missed} messages of the feed")
        self._send()

    def _say_last(self, who: str, line: str) -> None:
        log.warning("%s: %s", who, line)
        self._ask({"who": who, "what": NOTE, "text": line})

    # --- from the callbacks' threads

    def _ask(self, fields: Mapping[str, Any]) -> None:
        if fields["what"] == STOP:  # evaluations go on until the run has ended: once is enough
            if fields["who"] in self._stopping:
                return
            self._stopping[fields["who"]] = fields
        if len(self._asked) < MOST_ASKED:
            self._asked.append(fields)
            return
        self._unasked += 1
        if self._unasked == 1:
            log.warning("callback %s asks for too much: what comes beyond is left out", fields["who"])

    def _say(self, who: str, line: str) -> None:
        log.log(self._level, "callback %s: %s", who, line)
        self._ask({"who": who, "what": NOTE, "text": line})

    def _fail(self, who: str, line: str, trace: str) -> None:
        log.log(self._level, "callback %s %s\n%s", who, line, trace)
        about = {"summary": f"callback {who} {line}", "traceback": trace[-LONGEST_TRACE:]}
        self._failed.append({"name": self._name, **about})


def names_of(callbacks: Iterable[Callback]) -> list[str]:
    """A name for each callback: its class's, with a number where there are several."""
    kinds = [type(callback).__name__ for callback in callbacks]
    return [
        f"{kind}-{kinds[: place + 1].count(kind)}" if kinds.count(kind) > 1 else kind
        for place, kind in enumerate(kinds)
    ]
