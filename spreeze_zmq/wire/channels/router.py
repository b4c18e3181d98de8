"""ROUTER and DEALER: one end talks with each of several peers, and answers the one that it chooses."""

from __future__ import annotations

import errno
from typing import Any

import zmq

from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels.connections import SMALL_FRAME_BYTES
from spreeze_zmq.wire.channels.sockets import MOST_REFUSED_AT_ONCE, Channel


class Router(Channel):
    """The end that binds. A peer's address is a number of its connection, which a new connection changes."""

    _type = zmq.ROUTER
    _is_looked_at = True  # by machines that have not heard from here for some time
    _most_bytes = SMALL_FRAME_BYTES  # what is large goes to the machines
    _sent = 0

    def receive(self) -> tuple[bytes, Message] | None:
        """The next message with the address of its sender; None if none waits. Refused ones are counted."""
        for _ in range(MOST_REFUSED_AT_ONCE):
            if (frames := self._receive_frames()) is None:
                return None
            if (message := self._taken(frames[1:])) is not None:
                return bytes(frames[0]), message
        return None

    def _set_options(self, *options: Any) -> None:
        super()._set_options(*options)
        self.socket.router_mandatory = True  # else what is sent to a connection that has ended is dropped

    def send(self, peer: bytes, message: Message) -> bool:
        """Send to one peer without a wait; False if it takes none, or its connection is gone."""
        frames = [peer, *self._encode(message, self._sent)]
        self._wait_at_most(0.0)
        self._sent += 1
        try:
            return self._send(frames)
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False


class Dealer(Channel):
    """The end that connects."""

    _type = zmq.DEALER
    _sent = 0

    def send(self, message: Message) -> bool:
        """Send without a wait; False if the queue is full."""
        frames = self._encode(message, self._sent)
        self._wait_at_most(0.0)
        self._sent += 1
        return self._send(frames)

    def receive(self) -> Message | None:
        """The next message; None if none waits. Refused ones are counted."""
        return self._receive()
