"""What is noted of an update while it is recorded (``device/tape.py``), by those who compute beside torch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Recording(Protocol):
    """A recording under way."""

    def note(self, step: Callable[[], object]) -> None:
        """Repeat this at the same place of each replay."""

    def check(self, check: Callable[[], object]) -> None:
        """Call what reads tensors on the host, now and at the same place of each replay."""

    def refuse(self, why: str) -> None:
        """A replay would not be what the call is."""


_thread = threading.local()


def under_way() -> Recording | None:
    """This thread's recording."""
    found: Recording | None = getattr(_thread, "recording", None)
    return found


@contextlib.contextmanager
def into(recording: Recording) -> Iterator[None]:
    """Inside, what this thread does is noted in ``recording``."""
    _thread.recording = recording
    try:
        yield
    finally:
        _thread.recording = None


def call(function: Any, *arguments: Any) -> None:
    """Call a native function on memory at fixed places, now and at each replay.

    Raises:
        MemoryError: it says by a number other than 0 that there was too little.
    """

    def step() -> None:
        if function(*arguments):
            raise MemoryError("native layers")

    if (recording := under_way()) is not None:
        recording.note(step)
    step()


def each_time(check: Callable[[], object]) -> None:
    """Call what reads tensors on the host, now and at each replay."""
    if (recording := under_way()) is not None:
        recording.check(check)
    else:
        check()


def refuse(why: str) -> None:
    """Say that what is being computed depends on more than its tensors, if it is being recorded."""
    if (recording := under_way()) is not None:
        recording.refuse(why)
