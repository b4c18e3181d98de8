"""The batch's side of its worker processes: start, send requests, receive results, kill, restart."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from spreeze_zmq.base.errors import EnvironmentFailure
from spreeze_zmq.envs.parallel.slots import MESSAGE_BYTES, RESET, UNIT, Slots

#: Longest wait for finished units before the batch looks for messages and hanging workers.
TICK_S = 0.25
#: Longest wait for the fork server to end, or to answer.
SERVER_S = 10.0
#: Longest options of a reset, as JSON.
OPTIONS_BYTES = MESSAGE_BYTES // 2
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from spreeze_zmq.envs.parallel.fork_server import main; main(*map(int, sys.argv[2:]))"
)


class WorkerPool:
    """Processes that step units of environments.

    Each worker has a message channel for requests, failures and infos. All workers write the numbers of
    finished units to one stream: the kernel keeps their order, and wakes the batch once, when the number that
    it waits for is complete. A worker that has made its environments reports all of its units as finished.

    Args:
        slots: the shared memory.
        settings: plain data for every worker, see ``Worker``.

    Attributes:
        server: the process that forks the workers.
    """

    def __init__(self, slots: Slots, settings: dict[str, Any]):
        self.slots = slots
        self.control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.done, their_done = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in settings["units"]]
        self.channels = [ours for ours, _ in pairs]
        tick = struct.pack("ll", 0, int(TICK_S * 1e6))
        self.done.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
        self.control.settimeout(SERVER_S)
        theirs = [their_control, their_done, *(end for _, end in pairs)]
        fds = [end.fileno() for end in theirs]
        fds.insert(2, slots.fd)
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, fds)]
        self.server = subprocess.Popen(command, pass_fds=fds, env=environment, stdin=subprocess.PIPE)
        for end in theirs:
            end.close()
        assert self.server.stdin is not None
        with (
            contextlib.suppress(BrokenPipeError),
            self.server.stdin as pipe,
        ):  # its death shows as for any other
            pipe.write(json.dumps({**settings, "arrays": slots.arrays}).encode())

    def step(self, worker: int, units: Sequence[int]) -> None:
        """Ask a worker to step units; after its death the batch asks again."""
        with contextlib.suppress(ConnectionError):
            self.channels[worker].send(b"".join(map(UNIT.pack, units)))

    def reset(self, worker: int, units: Sequence[int], options: dict[str, Any]) -> None:
        """Ask a worker to reset the chosen environments of units, with options as of ``check_options``."""
        message = RESET + json.dumps({"units": units, "options": options}).encode()
        with contextlib.suppress(ConnectionError):
            self.channels[worker].send(message)

    def finished(self, count: int) -> list[int] | None:
        """Up to ``count`` numbers of finished units, and the complements ``~w`` of workers that have died.

        Waits for ``count``, but at most ``TICK_S``; ``None`` when every process is gone.
        """
        size = UNIT.size * count
        try:
            received = self.done.recv(size, socket.MSG_WAITALL)
        except BlockingIOError:
            return []
        if not received:
            return None
        if rest := len(received) % UNIT.size:  # the wait ended within a number
            received += self.done.recv(UNIT.size - rest, socket.MSG_WAITALL)
        return [number for (number,) in UNIT.iter_unpack(received)]

    def none_finished(self) -> bool:
        """Whether no finished unit waits to be received."""
        try:
            return not self.done.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True

    def messages(self, worker: int) -> Iterator[dict[str, Any]]:
        """Receive the messages of a worker: ``summary`` and ``traceback`` of a failure, ``row`` and
        ``final_info`` of an episode that ended, or ``error`` and ``traceback`` if it could not start.
        """
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while message := self.channels[worker].recv(MESSAGE_BYTES, socket.MSG_DONTWAIT):
                yield json.loads(message)

    def how_it_ended(self, worker: int) -> str:
        """How a worker died, in words for messages."""
        code = int(self.slots.exits[worker])
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def kill(self, worker: int) -> None:
        """Kill a worker that hangs."""
        if pid := int(self.slots.pids[worker]):
            os.kill(pid, signal.SIGKILL)

    def restart(self, worker: int) -> None:
        """Replace a dead worker by a new process, without waiting for it to make its environments.

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


def check_options(options: dict[str, Any]) -> None:
    """Check that the options of a reset can be sent to workers.

    Raises:
        ValueError: they are not plain data, or too long.
    """
    try:
        size = len(json.dumps(options))
    except TypeError as error:
        raise ValueError(f"options for environments in workers are plain data, but: {error}") from None
    if size > OPTIONS_BYTES:
        raise ValueError(f"options of {size} bytes, but workers take at most {OPTIONS_BYTES}")
