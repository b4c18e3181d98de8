"""PUSH and PULL: every message to one peer, and backpressure where that peer does not take it."""

from __future__ import annotations

import zmq

from spreeze_zmq.channels.sockets import Channel
from spreeze_zmq.wire import Message


class Pusher(Channel):
    """The sending end. What it is given it has sent for good, also when the peer restarts before taking it.

    Arrays of :data:`~spreeze_zmq.channels.ZERO_COPY_BYTES` or more are sent from their own memory and are
    read-only from then on; make new ones for the next message.

    Between a pusher and a puller that takes nothing lie the queues of both ends and what the kernel holds: at
    most ``2 * high_water_mark + 1`` messages and twice ``socket_buffer_bytes``; left to itself Linux holds
    208 KiB. Measured over ipc with a high-water mark of 2, without and with ``socket_buffer_bytes = 16384``:
    4 and
    4 messages of 300 KB, 7 and 5 of 20 KB, 32 and 10 of 7 KB, 99 and 21 of 1 KB.
    """

    _type = zmq.PUSH
    _sent = 0

    def try_push(self, message: Message) -> bool:
        """Send ``message``, or return False at once where the peer leaves no place.

        Raises:
            WireError: the message cannot travel.
        """
        return self.push(message, 0.0)

    def push(self, message: Message, timeout_s: float) -> bool:
        """Send ``message`` as soon as there is a place; False where there is none for ``timeout_s``.

        Raises:
            WireError: the message cannot travel.
        """
        frames = self._encode(message, self._sent)
        if self._kernel_buffer is not None:
            self._kernel_buffer.serve()
        self._wait_at_most(timeout_s)
        if not self._send(frames):
            # Without a wait ZeroMQ may look at an old view of the queue; polling brings that up to date.
            if timeout_s > 0 or not zmq.zmq_poll([(self.socket, zmq.POLLOUT)], 0):
                return False
            if not self._send(frames):
                return False
        self._sent += 1
        return True


class Puller(Channel):
    """The receiving end. Peers are served in turn, each message whole; who has just begun to send may have to
    wait until a poller waits for this channel, the others are empty, or ZeroMQ has read 100 frames of them.
    """

    _type = zmq.PULL

    def pull(self, timeout_s: float = 0.0) -> Message | None:
        """The next message; None where none comes within the timeout.

        A malformed one is counted, logged and passed over.
        """
        self._wait_at_most(timeout_s)
        return self._receive()
