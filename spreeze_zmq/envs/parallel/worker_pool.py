"""The batch's side of its worker processes: start, send requests, receive results, kill, restart."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from spreeze_zmq.envs.parallel.slots import MESSAGE_BYTES, UNIT, Slots
from spreeze_zmq.errors import EnvironmentFailure

#: Longest uninterrupted wait for finished units; hanging workers are looked for in between.
TICK_S = 0.25
#: Longest wait for the server to end, or to answer.
SERVER_S = 10.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from spreeze_zmq.envs.parallel.fork_server import main; main(*map(int, sys.argv[2:]))"
)


class WorkerPool:
    """Processes that step units of environments.

    Each worker has a channel of messages for requests and failures. All workers write the numbers of finished
    units to one stream: the kernel keeps their order, and wakes the batch once, when as many as it waits for
    are there. A worker that has made its environments reports all of its units as finished.

    Args:
        slots: the shared memory.
        units: for each worker its units, as ``(first row, number of rows)``.
        settings: of every worker, see ``Worker``: ``seed`` and ``make``; plain data.

    Attributes:
        server: the process that forks the workers.
    """

    def __init__(self, slots: Slots, units: Sequence[Sequence[tuple[int, int]]], settings: dict[str, Any]):
        self.slots = slots
        self.control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.done, their_done = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in units]
        self.channels = [ours for ours, _ in pairs]
        tick = struct.pack("ll", 0, int(TICK_S * 1e6))
        self.done.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
        self.control.settimeout(SERVER_S)
        theirs = [their_control, their_done, *(end for _, end in pairs)]
        fds = [end.fileno() for end in theirs]
        fds.insert(2, slots.fd)
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, fds)]
        self.server = subprocess.Popen(command, pass_fds=fds, env=environment, stdin=subprocess.DEVNULL)
        for end in theirs:
            end.close()
        number = itertools.count()
        numbers = [[next(number) for _ in own] for own in units]
        plain = {**settings, "units": units, "numbers": numbers, "arrays": slots.arrays}
        self.control.send(json.dumps(plain).encode())

    @property
    def pids(self) -> list[int]:
        """Of the workers; 0 for one that has ended."""
        pids: list[int] = self.slots.pids.tolist()
        return pids

    def request(self, worker: int, units: bytes | bytearray) -> None:
        """Send numbers of units; after a worker's death the batch sends them again."""
        with contextlib.suppress(ConnectionError):
            self.channels[worker].send(units)

    def take(self, count: int) -> list[int] | None:
        """Up to ``count`` numbers of finished units; the number of a dead worker comes as its complement.

        Waits for ``count``, at most ``TICK_S``; ``None`` when every process is gone.
        """
        size = UNIT.size * count
        try:
            found = self.done.recv(size, socket.MSG_WAITALL)
        except BlockingIOError:
            return []
        if not found:
            return None
        if rest := len(found) % UNIT.size:  # the wait ended within a number
            found += self.done.recv(UNIT.size - rest, socket.MSG_WAITALL)
        return [number for (number,) in UNIT.iter_unpack(found)]

    def none_finished(self) -> bool:
        """Whether there is no finished unit to take."""
        try:
            return not self.done.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True

    def messages(self, worker: int) -> Iterator[dict[str, Any]]:
        """Messages of a worker: ``summary`` and ``traceback`` of each failure, ``final_info`` of an episode
        that ended in a ``row``, its last ``error``.
        """
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while message := self.channels[worker].recv(MESSAGE_BYTES, socket.MSG_DONTWAIT):
                yield json.loads(message)

    def how_it_ended(self, worker: int) -> str:
        """How a worker died, in words."""
        code = int(self.slots.exits[worker])
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def kill(self, worker: int) -> None:
        """Kill a worker that hangs."""
        if pid := self.pids[worker]:
            os.kill(pid, signal.SIGKILL)

    def restart(self, worker: int) -> None:
        """Start a new process in place of a dead one, without waiting for its environments.

        Raises:
            EnvironmentFailure: the server is gone.
        """
        try:
            self.control.send(UNIT.pack(worker))
            answer = self.control.recv(MESSAGE_BYTES)
        except (TimeoutError, ConnectionError):
            answer = b""
        if not answer:
            raise EnvironmentFailure("the process that makes the workers is gone; its output is above")

    def close(self) -> None:
        """End all processes."""
        for end in (*self.channels, self.control):
            end.close()
        try:
            self.server.wait(SERVER_S)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.done.close()
        os.close(self.slots.fd)
