"""Tells the author's Python code from that of libraries, by the files of its frames."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

#: Whose code a file holds: see :func:`origin`.
AUTHOR, LIBRARY, STANDARD, INTERNAL = "author", "library", "standard", "internal"

#: The parts of torch and of this package whose objects an author holds and changes.
_SHARED = {"torch": ("nn/", "distributions/", "optim/"), "spreeze_zmq": ("algorithms/", "nn/"), "numpy": ()}
#: What runs a loss rather than being part of one.
_AROUND = (
    *(f"algorithms/{name}.py" for name in ("half", "learner_networks", "declared", "observations")),
    *("nn/device/", "nn/native/"),
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
