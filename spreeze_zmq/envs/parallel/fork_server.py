"""The program that forks the workers: it imports the environments once, and reports each worker that dies.

``WorkerPool`` starts it. When the batch closes the control channel, or dies, the workers get ``GRACE_S`` to
close their environments; the kernel kills the remaining ones when this process exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from gymnasium.envs.registration import load_env_creator

from spreeze_zmq.base.parent_death import die_with_parent
from spreeze_zmq.envs.parallel.slots import MESSAGE_BYTES, UNIT, Slots
from spreeze_zmq.envs.parallel.worker import work
from spreeze_zmq.envs.source import find

#: Time for workers to close their environments, before they are killed.
GRACE_S = 2.0


class ForkServer:
    """Forks the workers of one batch.

    Args:
        control: receives the numbers of workers to restart; each is sent back after the fork.
        done: the stream of finished units, to which the complement of a dead worker's number is written.
        slots: the shared memory; process ids and exit codes are written to it.
        channels: the workers' ends of their channels; a restarted worker inherits its predecessor's.
        settings: as for ``Worker``.
    """

    def __init__(
        self,
        control: socket.socket,
        done: socket.socket,
        slots: Slots,
        channels: Sequence[socket.socket],
        settings: dict[str, Any],
    ):
        self.control, self.done, self.slots, self.channels = control, done, slots, channels
        self.settings = settings
        self.restarts = [0] * len(channels)
        self.workers: dict[int, int] = {}  # process id -> number of the worker
        self.child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork all workers and restart them on request until the batch closes the channel, then end them."""
        for worker in range(len(self.channels)):
            self.fork(worker)
        with contextlib.suppress(ConnectionError):
            while message := self.next_request():
                (worker,) = UNIT.unpack(message)
                self.restarts[worker] += 1
                with contextlib.suppress(BlockingIOError):  # the batch sends unread requests again
                    while self.channels[worker].recv(MESSAGE_BYTES, socket.MSG_DONTWAIT):
                        pass
                self.fork(worker)
                self.control.send(message)
        until_s = time.monotonic() + GRACE_S
        while self.workers and (left_s := until_s - time.monotonic()) > 0:
            select.select([self.child_ended], [], [], left_s)
            self.reap()

    def next_request(self) -> bytes:
        """Wait for the batch's next message and report deaths meanwhile; empty when the batch has ended."""
        while True:
            ready, _, _ = select.select([self.control.fileno(), self.child_ended], [], [])
            if self.child_ended in ready:
                self.reap()
            if self.control.fileno() in ready:
                return self.control.recv(MESSAGE_BYTES)

    def fork(self, worker: int) -> None:
        """Start one worker."""
        pid = os.fork()
        if pid == 0:
            self.become_worker(worker)
        self.workers[pid] = worker
        self.slots.pids[worker] = pid

    def become_worker(self, worker: int) -> None:
        """Run as a worker in the forked process until the batch ends; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent()
            self.control.close()
            ends = self.channels[worker], self.done
            work(*ends, self.slots, worker, self.restarts[worker], self.settings)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def reap(self) -> None:
        """Report each worker that has ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.child_ended, 4096)
        with contextlib.suppress(ChildProcessError, ConnectionError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                worker = self.workers.pop(pid)
                self.slots.pids[worker], self.slots.exits[worker] = 0, os.waitstatus_to_exitcode(status)
                self.done.sendall(UNIT.pack(~worker))


def preload(env_id: str) -> None:
    """Import the environment's modules, so that the workers share their memory."""
    with contextlib.suppress(Exception):  # workers report it
        source = find(env_id)
        source.native({})
        entry = source.registered.entry_point if source.registered is not None else None
        if isinstance(entry, str):
            load_env_creator(entry)


def main(control_fd: int, done_fd: int, slots_fd: int, *channel_fds: int) -> None:
    """Read the settings, of any length, from standard input, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch's process handles Ctrl-C
    # A stop request goes to the whole process group, but the batch may have steps left to take. A handler and
    # not SIG_IGN, which programs that the environments start would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    control = socket.socket(fileno=control_fd)
    settings = json.load(sys.stdin)
    slots = Slots(settings.pop("arrays"), slots_fd)
    preload(settings["env_id"])
    channels = [socket.socket(fileno=fd) for fd in channel_fds]
    ForkServer(control, socket.socket(fileno=done_fd), slots, channels, settings).serve()
