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
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from spreeze_zmq.envs.parallel.slots import Slots
from spreeze_zmq.envs.parallel.units import MESSAGE_BYTES, UNIT
from spreeze_zmq.errors import EnvironmentFailure

#: Longest uninterrupted wait for finished units; hanging workers are looked for in between.
TICK_S = 0.25
START_TIMEOUT_S = 60.0
#: Time for workers to close their environments, before they are killed.
GRACE_S = 2.0
SERVER_GONE = "the process that makes the workers is gone; its output is above"
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from spreeze_zmq.envs.parallel.fork_server import main; main(*map(int, sys.argv[2:]))"
)


class WorkerPool:
    """Processes that step units of environments.

    Each worker has a socket of messages for requests and failures. All workers write the numbers of finished
    units to one stream: the kernel keeps their order, and wakes the batch once, when as many as it waits for
    are there.

    Args:
        slots: the shared memory.
        units: for each worker its units, as ``(first row, number of rows)``.
        settings: of every worker, see ``Worker``: ``seed`` and ``make``; plain data.

    Attributes:
        pids: of the workers.
        server: the process that forks the workers.

    Raises:
        EnvironmentFailure: a worker did not start.
    """

    def __init__(self, slots: Slots, units: Sequence[Sequence[tuple[int, int]]], settings: dict[str, Any]):
        self.slots, self.units, self.settings = slots, units, settings
        numbers = itertools.count()
        self.numbers = [[next(numbers) for _ in own] for own in units]
        self.pids = [0] * len(units)
        self.restarts = [0] * len(units)
        self.channels: list[socket.socket] = []
        self._ends: dict[int, str] = {}
        self._living: set[int] = set()
        self._start_server()
        try:
            self._start_workers()
        except BaseException:
            self.close()
            raise

    def _start_workers(self) -> None:
        for worker in range(len(self.units)):
            self.channels.append(self._request(worker))
        for _ in self.units:
            self._read_pid()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        for worker in range(len(self.units)):
            self.await_ready(worker, deadline_s)

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.done, theirs_done = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        tick = struct.pack("ll", 0, int(TICK_S * 1e6))
        self.done.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
        fds = theirs.fileno(), theirs_done.fileno(), self.slots.fd
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, fds)]
        self.server = subprocess.Popen(command, pass_fds=fds, env=environment, stdin=subprocess.DEVNULL)
        theirs.close()
        theirs_done.close()
        self.channel = ours
        ours.settimeout(START_TIMEOUT_S)
        ours.send(json.dumps({**self.settings, "layout": asdict(self.slots.layout)}).encode())

    def _request(self, worker: int) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"worker": worker, "units": self.units[worker], "numbers": self.numbers[worker]}
        request["restarts"] = self.restarts[worker]
        try:
            socket.send_fds(self.channel, [json.dumps(request).encode()], [theirs.fileno()])
        except ConnectionError as error:
            raise EnvironmentFailure(SERVER_GONE) from error
        finally:
            theirs.close()
        return ours

    def _read_pid(self) -> None:
        started = self._read("started")
        self.pids[started["started"]] = started["pid"]
        self._living.add(started["started"])

    def _read(self, wanted: str) -> dict[str, Any]:
        """The server's next message that has this key; deaths reported before it are kept."""
        while True:
            try:
                message = self.channel.recv(MESSAGE_BYTES)
            except (TimeoutError, ConnectionError):
                message = b""
            if not message:
                raise EnvironmentFailure(SERVER_GONE)
            read: dict[str, Any] = json.loads(message)
            if "how" in read:
                self._ends[read["ended"]] = read["how"]
                self._living.discard(read["ended"])
            if wanted in read:
                return read

    def await_ready(self, worker: int, deadline_s: float) -> None:
        """Wait until a worker has made its environments.

        Raises:
            EnvironmentFailure: it failed, or the deadline passed.
        """
        channel = self.channels[worker]
        channel.settimeout(max(0.01, deadline_s - time.monotonic()))
        try:
            message = channel.recv(MESSAGE_BYTES)
        except TimeoutError:
            raise EnvironmentFailure(f"worker {worker} has not made its environments in time") from None
        finally:
            channel.settimeout(None)
        if not message:
            raise EnvironmentFailure(f"worker {worker} died while it made its environments")
        if "error" in (answer := json.loads(message)):
            raise EnvironmentFailure(f"worker {worker}: {answer['error']}\n{answer['traceback']}".rstrip())

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

    def messages(self, worker: int) -> Iterator[dict[str, str]]:
        """Messages of a worker: ``summary`` and ``traceback`` of each failure, or its last ``error``."""
        while True:
            try:
                message = self.channels[worker].recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError):
                return
            if not message:
                return
            if read := json.loads(message):
                yield read

    def how_it_ended(self, worker: int) -> str:
        """How a worker died, in words; the server reports it before the death is among the finished units."""
        while worker not in self._ends:
            self._read("how")
        return self._ends.pop(worker)

    def kill(self, worker: int) -> None:
        """Kill a worker that hangs."""
        os.kill(self.pids[worker], signal.SIGKILL)

    def restart(self, worker: int) -> None:
        """Start a new process in place of a dead one, without waiting for its environments."""
        self.restarts[worker] += 1
        self.channels[worker].close()
        self.channels[worker] = self._request(worker)
        self._read_pid()

    def close(self) -> None:
        """End all processes; workers get ``GRACE_S`` to close their environments."""
        for channel in self.channels:
            channel.close()
        until_s = time.monotonic() + GRACE_S
        with contextlib.suppress(EnvironmentFailure):
            while self._living and (left_s := until_s - time.monotonic()) > 0:
                self.channel.settimeout(left_s)
                self._read("how")
        self.channel.close()
        try:
            self.server.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.done.close()
        os.close(self.slots.fd)
