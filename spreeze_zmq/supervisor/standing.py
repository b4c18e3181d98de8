"""Where a process stands that no longer answers: asked by a signal, it writes its stack into its log."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from itertools import takewhile
from pathlib import Path

from spreeze_zmq.base.errors import is_users
from spreeze_zmq.base.machine import shipped_folder

#: The signal, and the longest wait for an answer, which a stopped process and one in C do not give.
ASK, ANSWERS_S = signal.SIGUSR2, 0.5

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def answer() -> None:
    """Have this process answer; its standard error is its log."""
    faulthandler.register(ASK, all_threads=False)


def place_of(pid: int, log_path: Path) -> str:
    """``in reset() at FILE:LINE`` for a process whose stack stands there; empty if it does not answer.

    Args:
        pid: of a process of this machine that is to be killed: it ends if it knows no answer.
        log_path: its log.
    """
    text, before, until_s = b"", b"", time.monotonic() + ANSWERS_S
    with contextlib.suppress(OSError):
        begin = log_path.stat().st_size
        os.kill(pid, ASK)
        while time.monotonic() < until_s and (not text or text != before):  # it is written line by line
            time.sleep(0.05)
            with log_path.open("rb") as log:
                log.seek(begin)
                before, text = text, log.read()
    return in_words(text.decode("utf-8", errors="replace"))


def in_words(stack: str) -> str:
    """The place of a stack, as faulthandler writes it, the innermost call first: the innermost line of the
    user's own code, else of all, and the function there that this package called.
    """
    frames = _FRAME.findall(stack)
    if not frames:
        return ""
    inner = next((place for place, frame in enumerate(frames) if _is_anothers(frame[0], users=True)), 0)
    file, line, function = frames[inner]
    for *_, called in takewhile(lambda frame: _is_anothers(frame[0]), frames[inner:]):
        function = called
    return f"in {function}() at {file}:{line}"


def _is_anothers(file: str, *, users: bool = False) -> bool:
    """Whether a file is not of this package; with ``users`` whether it is in no other package either."""
    ours = (str(Path(__file__).parents[1]), str(shipped_folder("components")), "<frozen")
    return not file.startswith(ours) and (not users or is_users(file))
