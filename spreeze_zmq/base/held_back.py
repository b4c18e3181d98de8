"""Holds signals back while something is done that none of them may end in the middle."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FrameType
from typing import Any

_Handlers = dict[int, Callable[[int, FrameType | None], Any]]


@contextlib.contextmanager
def held_back(numbers: Iterable[int]) -> Iterator[None]:
    """Signals wait until the block is done, and their handlers then run, so that it may end with
    KeyboardInterrupt. To a process that the block starts they wait until it asks for them. One without a
    handler of Python's, as SIGTERM by default, waits only where no other thread takes it.
    """
    numbers = set(numbers)
    is_main = threading.current_thread() is threading.main_thread()
    with _blocked(numbers), _noted(numbers) if is_main else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _blocked(numbers: Collection[int]) -> Iterator[None]:
    """The system keeps signals to this thread, and gives those to the process to another one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _noted(numbers: Collection[int]) -> Iterator[None]:
    """Python runs handlers in the main thread, whichever thread has taken the signal: those that come to
    others meanwhile are noted, and sent to this thread afterwards.
    """
    came, handlers = set[int](), _Handlers()
    try:
        for number in numbers:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda number, _: came.add(number))
        yield
    finally:
        try:
            _give_back(handlers)
        finally:
            for number in came:
                signal.raise_signal(number)


def _give_back(handlers: _Handlers) -> None:
    """Set all of these handlers, also where one that has been set raises meanwhile."""
    try:
        while handlers:
            number = next(iter(handlers))
            signal.signal(number, handlers[number])
            del handlers[number]
    finally:
        if handlers:
            _give_back(handlers)
