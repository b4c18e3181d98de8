"""Looks at an environment in a short-lived process of its own, so that nothing it does reaches this one.

The user's code may change the folder, start threads and programs, hang, crash or end its process. The process
is a fork where that is safe, as at the start of a command, else a new interpreter. It sends plain data back.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import msgpack

from spreeze_zmq.base.errors import InvalidEnvironment, InvalidRandomization
from spreeze_zmq.base.guard import Guard, GuardedGroup
from spreeze_zmq.base.parent_death import bound_to_parent, exit_codes_kept
from spreeze_zmq.envs.processes import (
    ChildProcess,
    Started,
    descendants,
    forked,
    interpreter,
    living,
    plain,
    wait_for,
)
from spreeze_zmq.envs.seen import Look

#: The longest time that one call of the environment may take, unless the caller allows more.
WAIT_S = 300.0
#: Longest time for ``close()``.
CLOSE_S = 10.0
#: Times after which a wait is announced.
SAID_S = (3.0, 30.0, 120.0)
#: The largest message.
MAX_BYTES = 64 << 20
#: The length that precedes a message.
LENGTH = struct.Struct("<I")
CLOSING = "close()"
#: Libraries that have threads of their own from their import on.
WITH_THREADS = frozenset({"torch", "jax", "tensorflow"})


@exit_codes_kept()
def look(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None = None,
    randomize: Mapping[str, Any] | None = None,
    *,
    wait_s: float = WAIT_S,
    say: Callable[[str], None] = lambda line: None,
) -> Look:
    """Make one environment in another process, reset, step and close it.

    Args:
        env_id: as for ``envs.make``.
        env_kwargs: arguments of its constructor, which gets them as a run's processes do: a tuple as a list.
            What is no plain data reaches it where the process is a fork.
        randomize: ranges of its model's parameters, to check.
        wait_s: the longest time that one call of it may take.
        say: called with a line about each long wait.

    Raises:
        InvalidEnvironment: it cannot be made, no policy can act in its spaces, it ends its process or hangs.
        Unguarded: ``/bin/sh`` cannot be started, which ends the other process should this one be killed.
    """
    kwargs, ranges = dict(env_kwargs or {}), dict(randomize or {})
    job: dict[str, Any] = {"env_id": env_id, "env_kwargs": kwargs, "randomize": ranges}
    with contextlib.suppress(InvalidEnvironment):  # which a new interpreter raises where there is no fork
        job = json.loads(plain(job, env_id))
    visit = _Visit(job, wait_s, say)
    try:
        visit.hear_all()
    finally:
        left = visit.end()
    if left:
        names = ", ".join(sorted(set(left)))
        visit.remarks.append(f"{len(left)} of the processes that it started ({names}) outlived it: killed")
    assert visit.look is not None
    found = Look.from_plain(visit.look, job["env_kwargs"])
    timing = replace(found.timing, close_s=visit.close_s)
    return replace(found, timing=timing, remarks=(*found.remarks, *visit.remarks))


def may_fork() -> bool:
    """Whether a fork of this process can run any code: it has no other thread, which could hold a lock, and
    no library whose threads a fork would lack.
    """
    return threading.active_count() == 1 and not WITH_THREADS & sys.modules.keys()


class _Visit:
    """The process that looks at one environment, and what has been heard from it.

    Attributes:
        look: the look as plain data, once it has come.
        close_s: what ``close()`` took.
        remarks: lines about what is odd.
    """

    def __init__(self, job: Mapping[str, Any], wait_s: float, say: Callable[[str], None]) -> None:
        self._env_id, self._wait_s, self._say = str(job["env_id"]), wait_s, say
        self.look: Mapping[str, Any] | None = None
        self.close_s, self.remarks = 0.0, list[str]()
        self._doing, self._since_s, self._num_said = "making it", time.monotonic(), 0
        self._left: Sequence[Started] = ()
        self._over = False
        self._buffer = bytearray()
        with contextlib.ExitStack() as undo:
            self._pipe, theirs = os.pipe()
            undo.callback(os.close, self._pipe)
            try:
                self._guard = Guard()
                undo.callback(self._guard.close)
                self._group = self._guard.group()
                self._process = _process_for(job, theirs, self._group)
            finally:
                os.close(theirs)
            undo.pop_all()

    def hear_all(self) -> None:
        """Handle the messages of the process until it has closed the environment.

        Raises:
            InvalidEnvironment: what it says, or that it has ended, or is late.
        """
        while not self._over:
            message = self._next()
            if message is None:
                self._ended()
                return
            if "doing" in message:
                self._doing, self._since_s, self._num_said = message["doing"], time.monotonic(), 0
            elif "mistakes" in message:
                raise InvalidRandomization(self._env_id, [tuple(each) for each in message["mistakes"]])
            elif "error" in message:
                raise InvalidEnvironment(message["error"])
            elif "look" in message:
                self.look = message["look"]
            elif "closed" in message:
                self.close_s = message["closed"]
                self.remarks += filter(None, [message["said"]])
            elif "left" in message:
                self._left, self._over = message["left"], True

    def _next(self) -> dict[str, Any] | None:
        """The next message; None if the process has ended or is late in closing."""
        while (message := self._taken()) is None:
            has_ended = (
                self._process.poll() is not None
            )  # before the pipe is read: then its last words are there
            ready, _, _ = select.select([self._pipe], [], [], 0.1)
            received = os.read(self._pipe, 1 << 16) if ready else b""
            self._buffer += received
            if has_ended and not received:
                return None
            if ready and not received:  # its end is closed, and nothing more will come
                time.sleep(0.01)
            if self._is_late():
                return None
        return message

    def _taken(self) -> dict[str, Any] | None:
        """A whole message from the buffer, if there is one."""
        if len(self._buffer) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack_from(self._buffer)
        if size > MAX_BYTES:
            self._refuse(f"its description has {size:,} bytes, and at most {MAX_BYTES:,} are taken")
        if len(self._buffer) < LENGTH.size + size:
            return None
        content = bytes(self._buffer[LENGTH.size : LENGTH.size + size])
        del self._buffer[: LENGTH.size + size]
        found: dict[str, Any] = msgpack.unpackb(content, unicode_errors="surrogateescape")
        return found

    def _is_late(self) -> bool:
        """Whether ``close()`` is late; announces a long wait.

        Raises:
            InvalidEnvironment: another call is.
        """
        waited_s = time.monotonic() - self._since_s
        if self._num_said < len(SAID_S) and waited_s > SAID_S[self._num_said]:
            self._num_said += 1
            what = f"{self._doing} has taken {waited_s:.0f} s so far"
            self._say(f"{self._env_id}: one environment is tried before the run; {what}")
        if self._doing == CLOSING:
            return waited_s > CLOSE_S
        if waited_s > self._wait_s:
            hint = "components.sampler.start_timeout_s allows more where it is higher"
            self._refuse(f"{self._doing} has not returned after {waited_s:.0f} s ({hint})")
        return False

    def _ended(self) -> None:
        """Note that the process has ended, or was late, in the middle of a call.

        Raises:
            InvalidEnvironment: there is no look yet.
        """
        code = self._process.poll()
        if code is None:
            self.close_s = float("inf")
            self.remarks.append(f"{CLOSING} had not returned after {CLOSE_S:.0f} s; its process was killed")
            return
        how = f"killed it by {signal.Signals(-code).name}" if code < 0 else f"ended it with exit code {code}"
        if self.look is None:
            self._refuse(f"{self._doing} was tried in a process of its own, and {how}")
        self.remarks.append(f"{self._doing} was tried in a process of its own, and {how}")

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidEnvironment(f"{self._env_id}: {problem}")

    def end(self) -> list[str]:
        """End the process and all that it has started; returns the names of those that had to be killed."""
        os.close(self._pipe)
        others = living(self._left) if self._over else descendants(self._process.pid)
        if self._over:  # it is about to end, and gives those that follow it a moment
            wait_for(lambda: self._process.poll() is not None and not living(self._left))
            others = living(self._left)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, _, _ in living(others):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)
            wait_for(lambda: self._process.poll() is not None and not living(others))
        while self._process.poll() is None:
            time.sleep(0.005)
        self._group.end()
        self._guard.close()
        return [name for _, _, name in others] if self._over else []


def _process_for(job: Mapping[str, Any], pipe: int, group: GuardedGroup) -> ChildProcess:
    """The process that looks at the environment, and writes to ``pipe``; all that it starts in its group ends
    with this process, whatever ends that.

    Raises:
        InvalidEnvironment: the environment's arguments are not plain data, and a fork is not safe.
    """

    def run() -> None:
        with group.lines:  # what it forks would keep them open, and the guard waits for their end
            group.begin()
        from spreeze_zmq.envs.probed import visit

        visit(job, pipe)

    if may_fork():
        return forked(run)
    text = plain(job, f"{job['env_id']}: another process makes it, which gets its arguments")
    bind = bound_to_parent(signal.SIGKILL)

    def prepare() -> None:
        group.begin()
        bind()

    return interpreter("spreeze_zmq.envs.probed", [pipe], text, start_new_session=True, preexec_fn=prepare)
