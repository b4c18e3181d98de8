"""Holds signals back while something is done that none of them may end in the middle."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator


@contextlib.contextmanager
def held_back(numbers: Iterable[int]) -> Iterator[None]:
    """Signals to this thread wait until the block is done, and their handlers then run, so that it may end
    with KeyboardInterrupt. To a process that the block starts they wait until it asks for them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
