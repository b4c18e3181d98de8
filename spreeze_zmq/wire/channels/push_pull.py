"""PUSH and PULL: each message goes to one peer, and a peer that takes none blocks the sender."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import zmq

from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels.connections import TINY_FRAME_BYTES
from spreeze_zmq.wire.channels.sockets import Channel

_IPC = "ipc://"


class Gate:
    """A byte that a machine's senders share: whether the receiver elsewhere has room; a look at the memory.

    Each sender's own queue and the kernel's buffers hold tens of small messages. Where all of them wait for
    one connection, what waits in front of the receiver would grow with their number; those that look here
    before they make another message wait with none or one each.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._memory = mmap.mmap(descriptor, 1)
        finally:
            os.close(descriptor)

    @staticmethod
    def make(endpoint: str) -> None:
        """Make the gate of an ipc endpoint, open, before any of its ends opens."""
        _path(endpoint).write_bytes(b"\0")

    @classmethod
    def at(cls, endpoint: str) -> Gate | None:
        """The gate of an endpoint; None where it has none."""
        return cls(_path(endpoint)) if endpoint.startswith(_IPC) and _path(endpoint).exists() else None

    @property
    def is_shut(self) -> bool:
        """Whether who is about to make a message shall wait."""
        return self._memory[0] != 0

    def shut(self, *, shut: bool) -> None:
        """Shut or open it."""
        self._memory[0] = shut

    def close(self) -> None:
        self._memory.close()


def _path(endpoint: str) -> Path:
    return Path(f"{endpoint.removeprefix(_IPC)}.gate")


class Pusher(Channel):
    """The sending end. A pushed message is lost if the peer restarts before taking it.

    Arrays of ``sockets.ZERO_COPY_BYTES`` or more are sent from their own memory and become read-only: use new
    ones for the next message.

    If the puller takes nothing, the queues of both ends and the kernel accept at most
    ``2 * high_water_mark + 1`` messages plus twice ``socket_buffer_bytes`` (Linux's default: 208 KiB).
    Measured over ipc with a high-water mark of 2, without and with ``socket_buffer_bytes = 16384``: 4 and 4
    messages of 300 KB, 7 and 5 of 20 KB, 32 and 10 of 7 KB, 99 and 21 of 1 KB.
    """

    _type = zmq.PUSH
    _most_bytes = TINY_FRAME_BYTES
    _sent = 0
    _gate: Gate | None = None

    def __init__(self, endpoint: str, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self._gate = Gate.at(endpoint)

    @property
    def is_held(self) -> bool:
        """Whether the receiver, on another machine, has no room for what others of this machine have sent."""
        return self._gate is not None and self._gate.is_shut

    def close(self) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        super().close()

    def try_push(self, message: Message) -> bool:
        """:meth:`push` without a wait."""
        return self.push(message, 0.0)

    def push(self, message: Message, timeout_s: float) -> bool:
        """Send ``message`` as soon as a queue has room; False if none has room within ``timeout_s``.

        Raises:
            WireError: the message is malformed or of a kind that the channel does not carry.
        """
        frames = self._encode(message, self._sent)
        if self._kernel_buffer is not None:
            self._kernel_buffer.serve()
        self._wait_at_most(timeout_s)
        if not self._send(frames):
            # Without a wait, ZeroMQ may see an outdated state of the queue; polling updates it.
            if timeout_s > 0 or not zmq.zmq_poll([(self.socket, zmq.POLLOUT)], 0):
                return False
            if not self._send(frames):
                return False
        self._sent += 1
        return True


class Puller(Channel):
    """The receiving end, which takes one message from each peer in turn. A peer that has just begun to send
    may wait until this channel is polled, the other queues are empty, or ZeroMQ has read 100 frames of them.
    """

    _type = zmq.PULL

    def pull(self, timeout_s: float = 0.0) -> Message | None:
        """The next message; None if none arrives in time. Refused ones are counted and logged."""
        self._wait_at_most(timeout_s)
        return self._receive()
