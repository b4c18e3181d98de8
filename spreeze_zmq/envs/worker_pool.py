"""The worker processes as their batch sees them: started, told what to do, heard, killed, started again."""

from __future__ import annotations

import contextlib
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

from ..errors import EnvironmentFailure
from .slots import Slots
from .worker import MESSAGE_BYTES, UNIT

#: Longest uninterrupted wait for finished environments; what hangs is looked for in between.
TICK_S = 0.25
START_TIMEOUT_S = 60.0
#: For workers to close their environments in; what is left is killed.
GRACE_S = 2.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from spreeze_zmq.envs.fork_server import main; main(*map(int, sys.argv[2:]))"
)


class WorkerPool:
    """Processes that step units of environments.

    A worker is told what to do, and tells of failures, over a socket of its own whose messages keep their
    bounds. All workers put the numbers of what they have finished into one stream: the kernel keeps their
    order, and it wakes the batch once, when the first so many are there.

    Args:
        slots: the shared memory.
        units: for each worker its units, as numbers of the first row and counts.
        settings: of every worker: ``seed`` and ``make``, the arguments of ``make``; plain data.

    Raises:
        EnvironmentFailure: a worker did not come up.
    """

    def __init__(self, slots: Slots, units: Sequence[Sequence[tuple[int, int]]], settings: dict[str, Any]):
        self.slots, self.units, self.settings = slots, units, settings
        self.numbers: list[list[int]] = []
        for own in units:
            begin = sum(map(len, self.numbers))
            self.numbers.append(list(range(begin, begin + len(own))))
        self.pids = [0] * len(units)
        self.lives = [0] * len(units)
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
        request = {
            "worker": worker,
            "units": self.units[worker],
            "numbers": self.numbers[worker],
            "lives": self.lives[worker],
        }
        try:
            socket.send_fds(self.channel, [json.dumps(request).encode()], [theirs.fileno()])
        except ConnectionError as error:
            raise EnvironmentFailure(
                "the process that makes the workers is gone; its output is above"
            ) from error
        finally:
            theirs.close()
        return ours

    def _read_pid(self) -> None:
        started = self._read("started")
        self.pids[started["started"]] = started["pid"]
        self._living.add(started["started"])

    def _read(self, wanted: str) -> dict[str, Any]:
        """The next message of the server's that has this key; deaths told before it are kept."""
        while True:
            try:
                message = self.channel.recv(MESSAGE_BYTES)
            except (TimeoutError, ConnectionError):
                message = b""
            if not message:
                raise EnvironmentFailure("the process that makes the workers is gone; what it said is above")
            told: dict[str, Any] = json.loads(message)
            if "how" in told:
                self._ends[told["ended"]] = told["how"]
                self._living.discard(told["ended"])
            if wanted in told:
                return told

    def await_ready(self, worker: int, deadline_s: float) -> None:
        """Wait until a worker has made its environments.

        Raises:
            EnvironmentFailure: it could not, or did not until the deadline.
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

    def tell(self, worker: int, units: bytes | bytearray) -> None:
        """Hand units over; a dead worker gets them again when it has been started anew."""
        with contextlib.suppress(ConnectionError):
            self.channels[worker].send(units)

    def take(self, count: int) -> list[int] | None:
        """Up to ``count`` numbers of finished units, complements of dead workers' numbers among them.

        Waits for all of them, but no longer than ``TICK_S``; ``None`` when every process is gone.
        """
        size = UNIT.size * count
        try:
            found = self.done.recv(size, socket.MSG_WAITALL)
        except BlockingIOError:
            return []
        if not found:
            return None
        if rest := len(found) % UNIT.size:  # a message was split where the wait ended
            found += self.done.recv(UNIT.size - rest, socket.MSG_WAITALL)
        return [number for (number,) in UNIT.iter_unpack(found)]

    def nothing_waits(self) -> bool:
        """Whether everything that has finished was taken."""
        try:
            return not self.done.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True

    def messages(self, worker: int) -> Iterator[dict[str, str]]:
        """What a worker has told: ``summary`` and ``traceback`` of failures, or its last ``error``."""
        while True:
            try:
                message = self.channels[worker].recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError):
                return
            if not message:
                return
            if told := json.loads(message):
                yield told

    def how_it_ended(self, worker: int) -> str:
        """In words; the server tells it before the death is among the finished units."""
        while worker not in self._ends:
            self._read("how")
        return self._ends.pop(worker)

    def kill(self, worker: int) -> None:
        """End a worker that hangs."""
        os.kill(self.pids[worker], signal.SIGKILL)

    def restart(self, worker: int) -> None:
        """Start a new process in the place of a dead one; it makes its environments meanwhile."""
        self.lives[worker] += 1
        self.channels[worker].close()
        self.channels[worker] = self._request(worker)
        self._read_pid()

    def close(self) -> None:
        """End all processes: those that step get a moment to close their environments."""
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
