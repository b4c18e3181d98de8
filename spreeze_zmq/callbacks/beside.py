"""Callbacks in the process that started the launcher: a thread of it watches the run."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.callbacks.callback import Callback
from spreeze_zmq.callbacks.observers import Observers
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import FEED, REPORT
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import Message, channels

log = logging.getLogger("spreeze")

#: The name under which what the script's callbacks ask for, and how they fail, reaches the broker.
SCRIPT = "script"
#: Interval at which a run that is being set up is looked for, and longest wait for the feed.
LOOK_S, WAIT_S = 0.05, 0.1
#: Longest wait for a further message when the run is over, and for the callbacks before a line says so.
LAST_S, SILENT_S = 0.2, 1.0


@contextlib.contextmanager
def watched(folder: RunFolder, callbacks: Sequence[Callback], level: int = logging.INFO) -> Iterator[None]:
    """Call the callbacks while a run that is about to start in a folder goes on; the run waits for none.

    Args:
        folder: where the launcher writes run.json.
        callbacks: whom to call; without any nothing is opened.
        level: at which it is logged here that one fails or is slow: as a warning where the run shows nothing,
            which has no line of the wait at the end either.
    """
    if not callbacks:
        yield
        return
    over, about = threading.Event(), (folder, _written(folder), callbacks, level)
    thread = threading.Thread(target=_watch, args=(*about, over), name="callbacks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(KeyboardInterrupt):  # it ends this wait, and costs nobody the finished run
            _join(thread, max(float(each.end_s) for each in callbacks), level)


def _join(thread: threading.Thread, end_s: float, level: int) -> None:
    """Wait until the callbacks have taken all, at most for ``end_s``; soon say so where the run is shown."""
    thread.join(SILENT_S)
    if thread.is_alive() and level < logging.WARNING:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, which costs nobody the finished run
            say("callbacks take what has come last (Ctrl-C to leave it out)", flush=True)
    thread.join(end_s + 2 * LAST_S)


def _written(folder: RunFolder) -> tuple[int, int]:
    """What tells one run.json from another; the launcher refuses a folder that has one."""
    try:
        found = folder.run_file.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _watch(
    folder: RunFolder,
    before: tuple[int, int],
    callbacks: Sequence[Callback],
    level: int,
    over: threading.Event,
) -> None:
    """Whatever fails here, the run does not."""
    try:
        while (now := _written(folder)) == before or not any(now):
            if over.wait(LOOK_S):
                return
        _observe(Plan.read(folder.run_file), callbacks, level, over)
    except Exception:
        log.warning("the callbacks of this run are called no more", exc_info=True)


def _observe(plan: Plan, callbacks: Sequence[Callback], level: int, over: threading.Event) -> None:
    incarnation = secrets.randbelow(2**53 - 1) + 1
    feed, reports = (
        channels.open_channel(plan.channels[name], end, SCRIPT, incarnation)
        for name, end in ((FEED, "sub"), (REPORT, "push"))
    )
    assert isinstance(feed, channels.Subscriber)
    assert isinstance(reports, channels.Outbox)

    def post(kind: str, fields: Mapping[str, Any]) -> None:
        if not over.is_set():
            reports.post(Message(kind, dict(fields), {}, SCRIPT, incarnation))
        elif kind == "failure" and level < logging.WARNING:  # nobody listens any more
            log.warning("%s\n%s", fields["summary"], fields["traceback"])

    try:
        observers = Observers(plan, callbacks, feed, post, SCRIPT, level)
        while not over.is_set():
            channels.poll([feed], timeout_s=WAIT_S)
            observers.serve()
            reports.serve()
        while channels.poll([feed], timeout_s=LAST_S) and observers.serve():
            pass
        observers.finish()
    finally:
        feed.close()
        reports.close()
        channels.terminate()
