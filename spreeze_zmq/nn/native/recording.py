"""Lets code that computes without torch's operations take part in the recording of an update
(``device/tape.py``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from spreeze_zmq.nn.native.places import place


class Recording:
    """A recording in progress. This one records nothing, as a CUDA graph has no use for steps on the host.

    Attributes:
        refusal: why a replay would not do what the call does; empty if nothing is known against it.
    """

    refusal = ""

    def each_time(self, step: Callable[[], object]) -> None:
        """Call ``step``, which torch cannot see, now and at the same place of each replay."""
        step()

    def refuse(self, why: str, where: str | None = None) -> None:
        """Declare that a replay would not do what the call does.

        Args:
            why: what it does, as a part of a sentence.
            where: ``" (file:line)"``; the author's line that runs now by default.
        """
        self.refusal = self.refusal or f"{why}{place() if where is None else where}"


_thread = threading.local()


def under_way() -> Recording | None:
    """The recording in progress in this thread."""
    found: Recording | None = getattr(_thread, "recording", None)
    return found


@contextlib.contextmanager
def into(recording: Recording) -> Iterator[None]:
    """Inside, the steps and refusals of this thread go to ``recording``."""
    _thread.recording = recording
    try:
        yield
    finally:
        _thread.recording = None


def each_time(step: Callable[[], object]) -> None:
    """Call ``step``, such as a native function or a check on the host, now and at each replay."""
    if (recording := under_way()) is not None:
        recording.each_time(step)
    else:
        step()


def refuse(why: str) -> None:
    """Declare, if a recording is in progress, that the computation depends on more than its tensors."""
    if (recording := under_way()) is not None:
        recording.refuse(why)
