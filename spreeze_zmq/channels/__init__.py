"""Channels: named pairs of sockets between components. Nothing outside this package imports zmq."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from spreeze_zmq.channels.folder import MAX_IPC_BYTES, Claim, SocketFolder, ipc_endpoint
from spreeze_zmq.channels.poller import Poller
from spreeze_zmq.channels.pub_sub import Publisher, Subscriber
from spreeze_zmq.channels.push_pull import Puller, Pusher
from spreeze_zmq.channels.sockets import ZERO_COPY_BYTES, Channel, Counts, terminate
from spreeze_zmq.errors import ChannelError

__all__ = [
    "ENDS",
    "MAX_IPC_BYTES",
    "ZERO_COPY_BYTES",
    "Channel",
    "Claim",
    "Counts",
    "Poller",
    "Publisher",
    "Puller",
    "Pusher",
    "SocketFolder",
    "Subscriber",
    "ipc_endpoint",
    "open_channel",
    "terminate",
]

#: The end of a channel -> what holds it, and whether it binds.
ENDS: dict[str, tuple[type[Channel], bool]] = {
    "push": (Pusher, False),
    "pull": (Puller, True),
    "pub": (Publisher, True),
    "sub": (Subscriber, False),
}


class ChannelPlan(Protocol):
    """What a plan says of one channel."""

    @property
    def endpoint(self) -> str | None: ...
    @property
    def kinds(self) -> Collection[str]: ...
    @property
    def high_water_mark(self) -> int: ...
    @property
    def socket_buffer_bytes(self) -> int: ...


def open_channel(plan: ChannelPlan, end: str, sender: str, incarnation: int) -> Channel:
    """The ``end`` (push, pull, pub or sub) of a channel of the plan; pull and pub bind it.

    Raises:
        ChannelError: the channel has no endpoint yet, or it cannot be had.
    """
    if plan.endpoint is None:
        raise ChannelError("a channel without an endpoint: the plan has not been placed in a run's folder")
    kind, bind = ENDS[end]
    return kind(
        plan.endpoint,
        sender=sender,
        incarnation=incarnation,
        bind=bind,
        kinds=plan.kinds,
        high_water_mark=plan.high_water_mark,
        socket_buffer_bytes=plan.socket_buffer_bytes,
    )
