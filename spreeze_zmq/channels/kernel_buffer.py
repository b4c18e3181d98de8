"""Bounds what the kernel holds of an ipc connection, which ZeroMQ's own option does for tcp alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message


class KernelBuffer:
    """Sets SO_SNDBUF on each connection that a socket makes to one of its unix paths.

    Backpressure is as exact as the buffer is small: with Linux's default of 208 KiB, thirty rollouts of 7 KB
    can lie between a sampler and a learner that takes none. Linux doubles the size for its own bookkeeping.
    """

    def __init__(self, connecting: zmq.Socket[bytes], paths: Iterable[Path], num_bytes: int) -> None:
        self._paths, self._num_bytes = {str(path) for path in paths}, num_bytes
        self._socket = connecting
        self._monitor = connecting.get_monitor_socket(zmq.Event.CONNECTED)

    def serve(self) -> None:
        """Set the size on connections made since the last call; one look at a queue where there is none."""
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._apply(int(recv_monitor_message(self._monitor)["value"]))

    def close(self) -> None:
        """Stop watching."""
        self._socket.disable_monitor()

    def _apply(self, descriptor: int) -> None:
        # The connection may have gone, and its number may be another file's by now: look before setting.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family == socket.AF_UNIX and connection.getpeername() in self._paths:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._num_bytes)
