"""The recording of an update (``device/tape.py``) as the recorded code sees it: it takes steps that torch
cannot see, and refuses what a replay would not repeat, with the line of the author's code that runs.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

#: Whose code a file holds: see :func:`origin`.
AUTHOR, LIBRARY, STANDARD, INTERNAL = "author", "library", "standard", "internal"

#: The parts of torch and of this package whose objects an author holds and changes.
_SHARED = {"torch": ("nn/", "distributions/", "optim/"), "spreeze_zmq": ("algorithms/", "nn/"), "numpy": ()}
#: What runs a loss rather than being part of one.
_AROUND = (
    *(
        f"algorithms/{name}.py"
        for name in (
            *("half", "gradient_steps", "learner_networks", "flat_networks", "leaves"),
            *("optimiser", "moving", "declared", "observations"),
        )
    ),
    *("nn/adam.py", "nn/device/", "nn/native/"),
)
#: The files that a recorded call starts from.
_START = tuple(f"spreeze_zmq/nn/device/{name}.py" for name in ("watched", "taped", "captured"))


def _slashes(path: object) -> str:
    return str(path).replace("\\", "/")


_STANDARD = tuple({_slashes(sysconfig.get_path(name)) + "/" for name in ("stdlib", "platstdlib")})


@cache
def origin(filename: str) -> str:
    """Whose code a file holds: ``STANDARD`` for Python's own library, ``LIBRARY`` for layers, distributions
    and algorithms that an author builds on, ``INTERNAL`` for what computes below these, else ``AUTHOR``.
    """
    name = _slashes(filename)
    if name.startswith("<frozen"):
        return STANDARD
    for package, shared in _SHARED.items():
        root = _slashes(Path(getattr(sys.modules.get(package), "__file__", None) or "/-/-").parent) + "/"
        if name.startswith(root):
            inside = name[len(root) :]
            return LIBRARY if inside.startswith(shared) and not inside.startswith(_AROUND) else INTERNAL
    installed = "/site-packages/" in name or "/dist-packages/" in name
    return STANDARD if name.startswith(_STANDARD) and not installed else AUTHOR


def author_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the author's code within a recorded call; without one, that of a shipped
    algorithm or layer.
    """
    shipped = None
    while frame is not None and not _slashes(frame.f_code.co_filename).endswith(_START):
        kind = origin(frame.f_code.co_filename)
        if kind == AUTHOR:
            return frame
        if shipped is None and kind == LIBRARY:
            shipped = frame
        frame = frame.f_back
    return shipped


def place() -> str:
    """``" (file:line)"`` of the author's code that runs now; empty if there is none."""
    frame = author_frame(sys._getframe(1))
    return f" ({frame.f_code.co_filename}:{frame.f_lineno})" if frame is not None else ""


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
