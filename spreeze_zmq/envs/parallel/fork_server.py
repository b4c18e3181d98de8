"""The process that forks the workers: imports what they need once, and reports when one has ended.

``WorkerPool`` starts it as a program. It ends when its channel closes, however the batch's process died, and
the kernel kills the workers with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from gymnasium.envs.registration import load_env_creator

from spreeze_zmq.envs.parallel.slots import SlotLayout, Slots
from spreeze_zmq.envs.parallel.units import MESSAGE_BYTES, UNIT
from spreeze_zmq.envs.parallel.worker import work
from spreeze_zmq.envs.source import find

_PR_SET_PDEATHSIG = 1


class ForkServer:
    """Forks the workers of one batch.

    Args:
        channel: requests come in, each with the worker's end of its channel; pids and deaths go out.
        done: the stream of finished units; a death is written there too, as the complement of its number.
        slots: the shared memory.
        arguments: ``seed`` and ``make``, as for ``Worker``.
    """

    def __init__(self, channel: socket.socket, done: socket.socket, slots: Slots, arguments: dict[str, Any]):
        self.channel, self.done, self.slots, self.arguments = channel, done, slots, arguments
        self.workers: dict[int, int] = {}
        self.woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve requests until the batch closes the channel."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        poller.register(self.woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self.woken in ready:
                os.read(self.woken, 4096)
                self.reap()
            if self.channel.fileno() in ready:
                try:
                    message, fds, _, _ = socket.recv_fds(self.channel, MESSAGE_BYTES, 1)
                except ConnectionError:
                    return
                if not message:
                    return
                self.fork(json.loads(message), socket.socket(fileno=fds[0]))

    def fork(self, request: dict[str, Any], end: socket.socket) -> None:
        """Start one worker and report its pid."""
        pid = os.fork()
        if pid == 0:
            self.become_worker(request, end)
        end.close()
        self.workers[pid] = request["worker"]
        self.channel.send(json.dumps({"started": request["worker"], "pid": pid}).encode())

    def become_worker(self, request: dict[str, Any], end: socket.socket) -> None:
        """Run as a worker until the batch ends, in the forked process; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent()
            self.channel.close()
            work(end, self.done, self.slots, {**request, **self.arguments})
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
        with contextlib.suppress(ChildProcessError, ConnectionError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                worker = self.workers.pop(pid, None)
                if worker is not None:
                    code = os.waitstatus_to_exitcode(status)
                    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
                    self.channel.send(json.dumps({"ended": worker, "how": how}).encode())
                    self.done.sendall(UNIT.pack(~worker))


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


def preload(env_id: str) -> None:
    """Import the environments' modules, which the forked workers then share."""
    with contextlib.suppress(Exception):  # workers report it
        source = find(env_id)
        source.native({})
        entry = source.registered.entry_point if source.registered is not None else None
        if isinstance(entry, str):
            load_env_creator(entry)


def main(channel_fd: int, done_fd: int, slots_fd: int) -> None:
    """Read the settings from the first message, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch's process handles Ctrl-C
    channel = socket.socket(fileno=channel_fd)
    settings = json.loads(channel.recv(MESSAGE_BYTES))
    slots = Slots(SlotLayout(**settings.pop("layout")), slots_fd)
    preload(settings["make"]["env_id"])
    ForkServer(channel, socket.socket(fileno=done_fd), slots, settings).serve()
