"""Plain pyzmq with the settings that move most: what ``spreeze bench`` holds a channel against."""

from __future__ import annotations

import zmq


def send(
    endpoint: str, payload: memoryview, num_messages: int, high_water_mark: int, timeout_s: float
) -> zmq.Socket[bytes]:
    """Push ``num_messages`` messages of a small header and ``payload``, whose memory is sent as it lies.

    Returns the socket, which still sends what is queued.

    Raises:
        zmq.Again: nobody took a message for ``timeout_s``.
    """
    header = b"h" * 170
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
    socket.sndhwm = high_water_mark
    socket.sndtimeo = socket.linger = int(1000 * timeout_s)
    socket.copy_threshold = 0
    socket.connect(endpoint)
    for _ in range(num_messages):
        socket.send(header, zmq.SNDMORE)
        socket.send(payload, copy=False)
    return socket


class Puller:
    """Takes what ``send`` sends."""

    def __init__(self, endpoint: str, high_water_mark: int, timeout_s: float) -> None:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        socket.rcvhwm = high_water_mark
        socket.rcvtimeo = int(1000 * timeout_s)
        socket.linger = 0
        socket.bind(endpoint)
        self._socket = socket

    def pull(self) -> int:
        """Bytes of the payload of the next message.

        Raises:
            zmq.Again: none came within the timeout.
        """
        return len(self._socket.recv_multipart(copy=False)[1])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
