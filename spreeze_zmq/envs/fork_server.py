"""Makes worker processes: imports what they need once, forks them, tells when one has ended.

``WorkerPool`` starts the program, and the end of its channel ends it, in whatever way the batch's process
died; the kernel kills the workers with their server.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from .slots import Layout, Slots
from .worker import MESSAGE_BYTES, UNIT, work

_PR_SET_PDEATHSIG = 1


class ForkServer:
    """Serves one batch.

    Args:
        channel: requests come, each with the worker's own end of a channel; the pids and the deaths go.
        done: where workers say what is finished; a death goes there too, as the complement of the number.
        slots: the shared memory.
        arguments: of ``make``.
    """

    def __init__(self, channel: socket.socket, done: socket.socket, slots: Slots, arguments: dict[str, Any]):
        self.channel, self.done, self.slots, self.arguments = channel, done, slots, arguments
        self.workers: dict[int, int] = {}
        self.woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the batch hangs up."""
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
        """Start one worker and tell its pid."""
        pid = os.fork()
        if pid == 0:
            self.become_worker(request, end)
        end.close()
        self.workers[pid] = request["worker"]
        self.channel.send(json.dumps({"started": request["worker"], "pid": pid}).encode())

    def become_worker(self, request: dict[str, Any], end: socket.socket) -> None:
        """The rest of the forked process's life."""
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
        """Tell of every worker that has ended."""
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
    if os.getppid() != parent:  # it died before it could be asked for
        os._exit(1)


def preload(env_id: str) -> None:
    """Import what the environments will need, so that the workers find it."""
    from gymnasium.envs.registration import load_env_creator

    from .source import find

    importlib.import_module("spreeze_zmq.envs.gymnasium_loop")
    with contextlib.suppress(Exception):  # a worker says it better
        source = find(env_id)
        source.native({})
        entry = source.registered.entry_point if source.registered is not None else None
        if isinstance(entry, str):
            load_env_creator(entry)


def main(channel_fd: int, done_fd: int, slots_fd: int) -> None:
    """Take the settings as the first message, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the batch's to answer
    channel = socket.socket(fileno=channel_fd)
    settings = json.loads(channel.recv(MESSAGE_BYTES))
    layout = settings.pop("layout")
    shapes = {name: tuple(layout[name]) for name in ("obs_shape", "action_shape")}
    slots = Slots(Layout(**{**layout, **shapes}), slots_fd)
    preload(settings["make"]["env_id"])
    ForkServer(channel, socket.socket(fileno=done_fd), slots, settings).serve()
