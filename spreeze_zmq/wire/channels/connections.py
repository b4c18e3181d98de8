"""The options of a socket, every one written out: ZeroMQ's, and those of its connections in the kernel, to
which ZeroMQ's do not apply.
"""

from __future__ import annotations

import fcntl
import math
import os
import socket as sockets
import struct
import termios
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import zmq

from spreeze_zmq.wire import MAX_FRAME_BYTES

#: Frames of at least this size are sent without a copy. A smaller copy costs less than the notification from
#: ZeroMQ's thread that it no longer needs the array.
ZERO_COPY_BYTES = 128 * 1024
#: Kinds whose arrays may be large, and the largest frame of a channel without such kinds.
LARGE_KINDS = frozenset({"rollout", "policy", "critic", "welcome", "model", "fused"})
SMALL_FRAME_BYTES = 1 << 20
#: The largest frame that comes to an end which sends: a subscription, or a command of ZeroMQ's handshake.
TINY_FRAME_BYTES = 4096
_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT = 30, 10, 3
_RECONNECT_MS, _RECONNECT_MAX_MS = 10, 200
_HANDSHAKE_MS = 5000
_BACKLOG = 1024
#: What waits in a connection before it is sent: enough to keep a link busy while ZeroMQ's thread wakes up.
UNSENT_BYTES = 16 * 1024
#: After a cut a connection is tried again at least this often, and given up after ``GIVEN_UP_MS``.
AGAIN_MS, GIVEN_UP_MS = 1000, 120_000
#: The option that says how often, which Linux has since 6.15; before, the pauses double: after a cut of 20 s
#: the next try may be 13 s away.
_TCP_RTO_MAX_MS = 44
#: A connection that stands no more, as TCP_INFO calls it.
_CLOSED = 7


def set_options(
    socket: zmq.Socket[bytes],
    kinds: Set[str],
    high_water_mark: int,
    socket_buffer_bytes: int,
    linger_s: float,
    most_bytes: int,
) -> None:
    """Set those of a socket that is neither bound nor connected; arguments as those of ``Channel``."""
    socket.sndhwm = socket.rcvhwm = high_water_mark
    if socket_buffer_bytes:
        socket.sndbuf = socket.rcvbuf = socket_buffer_bytes
    # A receiving end has only subscriptions to send; with no publisher they would linger the full time.
    socket.linger = (
        math.ceil(1000 * linger_s) if socket.type in (zmq.PUSH, zmq.XPUB, zmq.ROUTER, zmq.DEALER) else 0
    )
    socket.sndtimeo = socket.rcvtimeo = 0  # no call waits without a given timeout
    large = not kinds or kinds & LARGE_KINDS
    socket.maxmsgsize = min(
        MAX_FRAME_BYTES if large else SMALL_FRAME_BYTES, most_bytes
    )  # beyond, it disconnects
    socket.ipv6 = False
    socket.immediate = False  # messages pushed before the peer exists are queued for it
    socket.backlog = _BACKLOG
    socket.handshake_ivl = _HANDSHAKE_MS
    socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS, _RECONNECT_MAX_MS
    socket.tcp_keepalive, socket.tcp_keepalive_idle = 1, _KEEPALIVE_IDLE_S
    socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = _KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT
    socket.copy_threshold = ZERO_COPY_BYTES


def next_event(monitor: zmq.Socket[bytes]) -> tuple[int, int]:
    """The next event of a monitor and its value, as zmq_socket_monitor(3) lays them out: pyzmq's own reader
    would import asyncio and ssl into each process.
    """
    event, value = struct.unpack("=hi", monitor.recv_multipart()[0])
    return event & 0xFFFF, value


class Upload:
    """The tcp connection over which an end sends to another machine, as the kernel has it.

    It takes up to ``UNSENT_BYTES`` beyond what is on its way, however long that is: in front of a learner
    that takes nothing waits no more. After a cut it sends again as soon as ``AGAIN_MS`` allow.

    Args:
        endpoint: as it was bound or connected to.
    """

    def __init__(self, endpoint: str) -> None:
        self._port = int(endpoint.rpartition(":")[2])
        self._descriptor = -1

    def begin(self, descriptor: int) -> None:
        """Set the options of a connection that ZeroMQ has made."""
        self._descriptor = descriptor
        if (connection := self.kept()) is not None:
            with connection, suppress(OSError):
                tcp = sockets.IPPROTO_TCP
                connection.setsockopt(tcp, sockets.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
                connection.setsockopt(tcp, _TCP_RTO_MAX_MS, AGAIN_MS)
                # Without it the kernel would count tries, and give up after 15 s.
                connection.setsockopt(tcp, sockets.TCP_USER_TIMEOUT, GIVEN_UP_MS)

    def kept(self) -> sockets.socket | None:
        """The newest connection, open until it is closed here too; None if it is gone."""
        with suppress(OSError):
            connection = sockets.socket(fileno=os.dup(self._descriptor))
            # It may have been closed and its descriptor reused.
            if connection.family == sockets.AF_INET and self._port in (
                connection.getpeername()[1],
                connection.getsockname()[1],
            ):
                return connection
            connection.close()
        return None


def is_owed(connection: sockets.socket) -> bool:
    """Whether a connection stands over which something was sent that the other machine has not got yet."""
    state = connection.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, 1)[0]
    [waiting] = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    return state != _CLOSED and waiting > 0


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
            _, descriptor = next_event(self._monitor)
            self._apply(descriptor)

    def close(self) -> None:
        self._socket.disable_monitor()

    def _apply(self, descriptor: int) -> None:
        # The connection may be closed and its descriptor reused: check the peer first.
        with suppress(OSError), sockets.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family == sockets.AF_UNIX and connection.getpeername() == self._path:
                connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, self._num_bytes)
