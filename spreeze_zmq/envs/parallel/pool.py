"""Arrays and messages that a batch shares with its workers, and its side: start, request, kill, restart."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment
from spreeze_zmq.base.files import memory_file
from spreeze_zmq.base.held_back import held_back
from spreeze_zmq.base.unbound import unbound
from spreeze_zmq.envs.processes import as_json, interpreter

#: The number of a unit: a request to step it, or the report that it is done. In a report the complement
#: ``~w`` means that worker ``w`` has died.
UNIT = struct.Struct("<i")
#: Starts a request to reset units; ``{"units": [...], "options": ...}`` follows as JSON.
RESET = UNIT.pack(-1)
#: Largest message to or from a worker.
MESSAGE_BYTES = 1 << 17
#: Longest wait for finished units before the batch looks for messages and hanging workers.
TICK_S = 0.25
#: Longest wait for the fork server to end, or to answer.
SERVER_S = 10.0
#: What ends the batch's process comes to its whole group. They wait until the server has handlers for them,
#: as the batch may have steps left to take.
STOPS = (signal.SIGINT, signal.SIGTERM)
#: Longest options of a reset, as JSON.
OPTIONS_BYTES = MESSAGE_BYTES // 2
#: Each array starts on its own cache line.
ALIGNMENT = 64

#: Shape and name of the dtype of each array, by the name of its attribute in ``Slots``.
Arrays = Mapping[str, tuple[Sequence[int], str]]


def arrays_for(
    env_id: str, num_envs: int, num_workers: int, observation: Space[Any], action: Space[Any]
) -> Arrays:
    """The arrays that a batch with these spaces shares with its workers.

    Raises:
        InvalidEnvironment: observations or actions have no fixed shape.
    """
    for name, space in (("observations", observation), ("actions", action)):
        if space.shape is None or space.dtype is None:
            raise InvalidEnvironment(
                f"{env_id}: its {name} are a {type(space).__name__}, which does not fit into shared memory"
                " (num_workers=0 steps it in this process)"
            )
    obs = (num_envs, *(observation.shape or ())), str(observation.dtype)
    flags = ("terminated", "truncated", "failed", "lost", "chosen")
    return {
        **dict.fromkeys(("obs", "final_obs"), obs),
        "action": ((num_envs, *(action.shape or ())), str(action.dtype)),
        "reward": ((num_envs,), "float64"),
        **dict.fromkeys(flags, ((num_envs,), "bool")),
        "seed": ((num_envs,), "int64"),
        **dict.fromkeys(("pids", "exits", "num_messages"), ((num_workers,), "int64")),
        "at": ((num_workers, 2), "int64"),
    }


class Slots:
    """The shared arrays, in anonymous memory that the kernel frees when the last process closes it.

    Args:
        arrays: shapes and dtypes, from ``arrays_for``.
        fd: file descriptor of existing memory; by default new memory is allocated.
    """

    obs: NDArray[Any]  # [N, *obs], written by the worker
    final_obs: NDArray[Any]  # [N, *obs] of the episodes that ended
    action: NDArray[Any]  # [N, *action], written by the batch
    reward: NDArray[np.float64]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    failed: NDArray[np.bool_]  # [N]: the step does not count; a message has the reason
    lost: NDArray[np.bool_]  # [N]: the state was lost with a worker; the next step truncates the episode
    chosen: NDArray[np.bool_]  # [N]: the environments to reset
    seed: NDArray[np.int64]  # [N]: seeds of a reset, negative for none
    pids: NDArray[np.int64]  # [workers]: process ids, 0 after the process has ended
    exits: NDArray[np.int64]  # [workers]: exit code of the last process, negative for a signal
    num_messages: NDArray[np.int64]  # [workers]: failures and infos that each worker has sent
    at: NDArray[np.int64]  # [workers, 2]: first row of the unit being stepped, environment within

    def __init__(self, arrays: Arrays, fd: int | None = None):
        self.arrays = arrays
        offsets, size = {}, 0
        for name, (shape, dtype) in arrays.items():
            offsets[name] = size
            size += -(-math.prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
        self.fd = memory_file("spreeze-envs") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        for name, (shape, dtype) in arrays.items():
            setattr(self, name, np.ndarray(shape, dtype, memory, offsets[name]))


def divide(num_envs: int, num_workers: int, batch_size: int, single: bool) -> list[list[tuple[int, int]]]:
    """Divide the rows of a batch into units: for each worker a list of ``(first row, number of rows)``.

    Args:
        num_envs: number of environments.
        num_workers: number of workers, at most ``num_envs``.
        batch_size: number of environments that ``recv`` waits for. If it is ``num_envs``, each worker has one
            unit; otherwise all units have the same size, which divides ``batch_size``.
        single: whether a unit of one environment costs no more per environment than a larger one.
    """
    if batch_size == num_envs:
        return [[(int(rows[0]), len(rows))] for rows in np.array_split(np.arange(num_envs), num_workers)]
    sizes = [1] if single else [n for n in range(1, batch_size + 1) if not (batch_size % n or num_envs % n)]
    even = [size for size in sizes if num_envs // size % num_workers == 0]
    fitting = [size for size in sizes if num_envs // size >= num_workers]
    size = max(even or fitting)
    shares = np.array_split(np.arange(num_envs // size), num_workers)
    return [[(int(unit) * size, size) for unit in share] for share in shares]


class WorkerPool:
    """Processes that step units of environments.

    Each worker has a message channel for requests, failures and infos. All workers write the numbers of
    finished units to one stream: the kernel keeps their order, and wakes the batch once, when the number that
    it waits for is complete. A worker that has made its environments reports all of its units as finished.

    Args:
        slots: the shared memory.
        settings: plain data for every worker, see ``WorkerForkServer``.

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
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **unbound()}
        text = json.dumps({**settings, "arrays": slots.arrays})
        with held_back(STOPS):
            self.server = interpreter("spreeze_zmq.envs.parallel.worker", fds, text, env=environment)
        for end in theirs:
            end.close()

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
        """Kill a worker that hangs, if it has not ended meanwhile."""
        if pid := int(self.slots.pids[worker]):
            with contextlib.suppress(ProcessLookupError):
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
        size = len(as_json(options))
    except TypeError as error:
        raise ValueError(f"options for environments in workers are plain data, but: {error}") from None
    if size > OPTIONS_BYTES:
        raise ValueError(f"options of {size} bytes, but workers take at most {OPTIONS_BYTES}")
