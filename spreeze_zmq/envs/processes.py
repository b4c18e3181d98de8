"""Processes for environments: forks and new interpreters, and what they have started themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import psutil

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.importing import check_interpreter
from spreeze_zmq.base.parent_death import bound_to_parent

#: Time for processes to end by themselves, and then to end after SIGTERM.
LEAVE_S = 0.5

#: Process id, time of its start and name.
Started = tuple[int, float, str]


def plain(arguments: Mapping[str, Any], said: str) -> str:
    """Arguments of environments as JSON, in which a tuple is a list.

    Raises:
        InvalidEnvironment: they are not plain data; the message begins with ``said``, which says for whom.
    """
    try:
        return as_json(arguments)
    except TypeError as error:
        how = "a callable of a module, 'module:callable', can make them there"
        raise InvalidEnvironment(f"{said} as plain data, but: {error} ({how})") from None


def as_json(value: Any) -> str:
    """Plain data as JSON.

    Raises:
        TypeError: it is none, as with a key that is no text, which JSON would silently make one.
    """
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError) as error:  # it is a part of itself
        raise TypeError(str(error)) from None
    _check_keys(value)
    return text


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r:.80} is no text")
            _check_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_keys(item)


def interpreter(module: str, fds: Sequence[int], text: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start Python, which finds modules where this process does and calls ``main`` of one.

    Args:
        module: whose ``main`` is called with the numbers ``fds``.
        fds: file descriptors that it inherits.
        text: its standard input, of any length.
        options: further arguments of ``subprocess.Popen``.

    Raises:
        InputError: there is no interpreter.
    """
    check_interpreter()
    code = f"from {module} import main; main(*map(int, sys.argv[2:]))"
    code = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]);{code}"
    command = [sys.executable, "-P", "-c", code, json.dumps(sys.path), *map(str, fds)]
    process = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.PIPE, **options)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # its death shows as for any other
        pipe.write(text.encode())
    return process


class ChildProcess(Protocol):
    """One that was started here, as ``subprocess.Popen`` describes it."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""


class _Fork:
    """A fork of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else in this process has taken it, as for subprocess
                pid, status = self.pid, 0
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def forked(run: Callable[[], object]) -> ChildProcess:
    """Call ``run``, which does not return, in a fork of this process, in a session of its own."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else the fork would write it once more
    bind = bound_to_parent(signal.SIGKILL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of numpy's library survive a fork
        pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            bind()
            run()
        finally:
            os._exit(1)
    return _Fork(pid)


def end_fork(error: BaseException) -> NoReturn:
    """End this process, which an environment has forked, as its ``error`` would by itself: all that it has
    inherited is its parent's, and no part of a run goes on in it.
    """
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        traceback.print_exception(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def wait_for(done: Callable[[], bool]) -> None:
    """Wait for at most ``LEAVE_S``."""
    until_s = time.monotonic() + LEAVE_S
    while not done() and time.monotonic() < until_s:
        time.sleep(0.005)


def descendants(pid: int) -> list[Started]:
    """The processes that a process has started, and those that they have."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found.append((child.pid, child.create_time(), child.name()))
    return found


def living(processes: Sequence[Started]) -> list[Started]:
    """Those that have not ended; another process may have taken a number since."""
    found = []
    for pid, began_s, name in processes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.create_time() == began_s and process.status() != psutil.STATUS_ZOMBIE:
                found.append((pid, began_s, name))
    return found


def end(processes: Sequence[Started]) -> None:
    """End processes by SIGTERM, and by SIGKILL those that stay."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, _, _ in living(processes):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        wait_for(lambda: not living(processes))
