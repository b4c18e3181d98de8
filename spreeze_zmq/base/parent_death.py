"""Asks the kernel to signal a child process when its parent dies and to keep how it ended, and who belongs to
whom.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator

from spreeze_zmq.base.errors import InputError

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2


def bound_to_parent(number: int, parent: int | None = None) -> Callable[[], None]:
    """A function for a child to call between fork and exec, after which the kernel sends it the signal
    ``number`` when ``parent`` dies, by default this process.
    """
    parent, prctl = parent or os.getpid(), ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before prctl
            os._exit(1)

    return bind


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    bound_to_parent(signal.SIGKILL, os.getppid())()


def is_bound() -> bool:
    """Whether the kernel will signal this process when its parent ends."""
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value != 0


def is_within(pid: object, leader: int) -> bool:
    """Whether a process is ``leader``, which has a session of its own, or one that it has started there, as a
    script starts a program without ``exec``. An id of 0 is no process, nor a session: the kernel says 0 of a
    session that began outside a container.
    """
    if not isinstance(pid, int) or pid <= 0 or leader <= 0 or pid == leader:
        return pid == leader
    try:
        return os.getsid(pid) == leader
    except OSError:
        return False


@contextlib.contextmanager
def exit_codes_kept(*, required: bool = False) -> Iterator[None]:
    """Inside, the kernel keeps how children of this process end. Where SIGCHLD is ignored, as it may be
    inherited, it drops that, and ``subprocess`` takes each of them for one that ended with code 0.

    Args:
        required: refuse where it cannot be changed, which the main thread alone can do; else leave it.

    Raises:
        InputError: it is ignored, and this is another thread.
    """
    ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    in_main = threading.current_thread() is threading.main_thread()
    if ignored and required and not in_main:
        raise InputError(
            "SIGCHLD is ignored in this process, which then does not hear how its children end, and only the "
            "main thread can change that: call signal.signal(signal.SIGCHLD, signal.SIG_DFL) there"
        )
    if ignored and in_main:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if ignored and in_main:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def has_children() -> bool:
    """Whether this process has a child, dead or alive; costs one system call, where a search reads /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
