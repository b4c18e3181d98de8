"""Limits the kernel's send buffer of ipc connections; ZeroMQ's option for it applies to tcp only."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message


class KernelBuffer:
    """Sets SO_SNDBUF on each connection that a socket makes to the unix ``path``.

    A small buffer makes backpressure more exact: Linux's default of 208 KiB holds thirty rollouts of 7 KB
    between a sampler and a learner that takes none. Linux doubles ``num_bytes`` for its bookkeeping.
    """

    def __init__(self, connecting: zmq.Socket[bytes], path: Path, num_bytes: int) -> None:
        self._path, self._num_bytes = str(path), num_bytes
        self._socket = connecting
        self._monitor = connecting.get_monitor_socket(zmq.Event.CONNECTED)

    def serve(self) -> None:
        """Set the size on connections made since the last call; without any, it costs one look at a queue."""
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._apply(int(recv_monitor_message(self._monitor)["value"]))

    def close(self) -> None:
        """Stop watching."""
        self._socket.disable_monitor()

    def _apply(self, descriptor: int) -> None:
        # The connection may be closed and its descriptor reused: check the peer first.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family == socket.AF_UNIX and connection.getpeername() == self._path:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._num_bytes)
