"""Forwards the messages of a channel's many ends on one machine over one connection, unread and uncopied."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import zmq

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire import KINDS, Message, claims_of, decode, encode
from spreeze_zmq.wire.channels.connections import is_owed
from spreeze_zmq.wire.channels.contexts import terminate
from spreeze_zmq.wire.channels.push_pull import Gate
from spreeze_zmq.wire.channels.sockets import Channel

#: Most messages that one channel forwards before the others have their turn.
BURST = 100
#: A receiver that takes nothing for this time has no room; a shorter time is ZeroMQ's own thread.
SHUT_AFTER_S = 0.01
#: Who asks for the latest messages subscribes to all of them.
ASKS = b"\x01"
#: Who misses weights asks a hundred times a second, and each answer goes to all subscribers.
REPEATED_EVERY_S = 0.05
#: Time between two looks at whether what was sent has arrived.
ARRIVED_AFTER_S = 0.02
_SNDMORE = int(zmq.SNDMORE)


class Upstream(Channel):
    """A SUB whose subscriptions are passed through: each is sent on, also a repeated one."""

    _type = zmq.XSUB


class Forwarder(Protocol):
    """One channel of a machine.

    Attributes:
        near: the end that this machine's processes connect to.
        far: the end that connects to who binds the channel, on another machine.
        way: ``sent`` to the other machine, or ``received`` from it.
        num_bytes: forwarded that way so far.
        is_blocked: whether the other machine takes nothing, so that the senders here wait.
    """

    way: str
    num_bytes: int

    @property
    def is_blocked(self) -> bool: ...

    @property
    def near(self) -> Channel: ...

    @property
    def far(self) -> Channel: ...

    def waits(self) -> list[tuple[Any, int]]:
        """Sockets and what is awaited of each, as ``zmq_poll`` takes them."""

    def serve(self) -> bool:
        """Forward what is there, without a wait; False if nothing was, or nothing had room."""


class Relay:
    """``pub_sub``: what is published comes once and goes to every subscriber here, of which a slow one loses
    messages; every subscription goes to the publisher, which repeats its latest messages. It does not know of
    what was lost here, and may be gone when it is missed: on a channel that carries weights alone the last
    ones are kept, and repeated here too.

    Args:
        near: the subscribers' end.
        far: the publisher's.
        passes: whether a message goes on, by its unverified origin and fields.
    """

    way = "received"

    def __init__(self, near: Channel, far: Channel, passes: Callable[[Message], bool] | None = None) -> None:
        self.near, self.far, self._passes = near, far, passes
        self.num_bytes, self.is_blocked = 0, False
        specs = [KINDS[kind] for kind in near.kinds]
        self._keeps = len(specs) == 1 and specs[0].retained and not specs[0].retained_by
        self._kept: list[zmq.Frame] = []
        self._repeated_s = -math.inf

    def waits(self) -> list[tuple[Any, int]]:
        """For messages, and for subscriptions."""
        return [(self.near.socket, zmq.POLLIN), (self.far.socket, zmq.POLLIN)]

    def serve(self) -> bool:
        """Forward messages and subscriptions."""
        any_came = is_asked = False
        for _ in range(BURST):
            subscription, message = self.near.take_frames(), self.far.take_frames()
            if not subscription and not message:
                break
            any_came = True
            _send(self.far, subscription)
            is_asked = is_asked or (bool(subscription) and subscription[0].bytes == ASKS)
            if message and self._passes is not None and not self._passes(claims_of([message[0].bytes])):
                continue
            _send(self.near, message)
            self.num_bytes += sum(map(len, message))
            if message and self._keeps:
                self._kept = message
        if is_asked and self._kept and time.monotonic() - self._repeated_s >= REPEATED_EVERY_S:
            self._repeat()
        return any_came

    def _repeat(self) -> None:
        """Repeat the message that was kept to every subscriber here that has room."""
        self._repeated_s = time.monotonic()
        frames = [frame.buffer for frame in self._kept]
        with contextlib.suppress(WireError):  # nobody could read it
            self.near.forward(encode(decode(frames)._replace(repeat=True)))


class Funnel:
    """``push_pull``: the messages of all senders here go to one receiver. None is dropped: while the receiver
    takes none, the queues fill up, and the senders wait; where there is a gate, before they make another.
    """

    way = "sent"

    def __init__(self, near: Channel, far: Channel) -> None:
        self.near, self.far = near, far
        self._gate = Gate.at(near.endpoint)
        self.upload = far.upload()
        self.num_bytes = 0
        self._held: list[zmq.Frame] = []
        self._moved_s = time.monotonic()

    @property
    def is_blocked(self) -> bool:
        """Whether a message waits for room."""
        return bool(self._held)

    def waits(self) -> list[tuple[Any, int]]:
        """For a message, or for room for the one in hand."""
        return [(self.far.socket, zmq.POLLOUT)] if self._held else [(self.near.socket, zmq.POLLIN)]

    def serve(self) -> bool:
        """Forward messages as long as there is room."""
        any_sent = False
        for _ in range(BURST):
            frames = self._held or self.near.take_frames()
            self._held = []
            if not frames:
                break
            if not _send(self.far, frames):
                self._held = frames
                break
            any_sent = True
            self.num_bytes += sum(map(len, frames))
        if any_sent or not self._held:
            self._moved_s = time.monotonic()
        if self._gate is not None:
            self._gate.shut(shut=time.monotonic() - self._moved_s > SHUT_AFTER_S)
        return any_sent


def forward(forwarders: Sequence[Forwarder], timeout_s: float) -> bool:
    """Forward what there is, after a wait for it; returns whether there was anything, or there still is."""
    waits = [wait for forwarder in forwarders for wait in forwarder.waits()]
    if any(forwarder.is_blocked for forwarder in forwarders):
        timeout_s = min(timeout_s, SHUT_AFTER_S)
    zmq.zmq_poll(waits, math.ceil(1000 * timeout_s))
    for forwarder in forwarders:
        forwarder.near.attend()
        forwarder.far.attend()
    served = [forwarder.serve() for forwarder in forwarders]
    return any(served) or any(forwarder.is_blocked for forwarder in forwarders)


def close(forwarders: Sequence[Forwarder], linger_s: float) -> None:
    """Close both ends of each, and end the thread's use of ZeroMQ. Waits until what is queued to be sent has
    arrived at the other machine, at most for ``linger_s``; the kernel sends what is left then.
    """
    until_s = time.monotonic() + linger_s
    uploads = [one.upload for one in forwarders if isinstance(one, Funnel) and one.upload is not None]
    connections = [kept for upload in uploads if (kept := upload.kept()) is not None]
    for forwarder in forwarders:
        forwarder.near.socket.linger = forwarder.far.socket.linger = 0
        if forwarder.way == "sent":
            forwarder.far.socket.linger = math.ceil(1000 * max(0.0, linger_s))
        forwarder.near.close()
        forwarder.far.close()
    terminate()
    for connection in connections:
        with connection:
            while is_owed(connection) and time.monotonic() < until_s:
                time.sleep(ARRIVED_AFTER_S)


def _send(channel: Channel, frames: list[zmq.Frame]) -> bool:
    """Send on; False if there is no room, which only the first frame can show."""
    left = len(frames)
    try:
        for frame in frames:
            left -= 1
            channel.send_frame(frame, _SNDMORE if left else 0, False)
    except zmq.Again:
        return False
    return True
