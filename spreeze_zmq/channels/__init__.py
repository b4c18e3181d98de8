"""Channels: named pairs of sockets between components. Nothing outside this package imports zmq."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from spreeze_zmq.channels.folder import Claim, SocketFolder, ipc_endpoint
from spreeze_zmq.channels.poller import Poller
from spreeze_zmq.channels.pub_sub import Publisher, Subscriber
from spreeze_zmq.channels.push_pull import Puller, Pusher
from spreeze_zmq.channels.sockets import ZERO_COPY_BYTES, Channel, Counts, terminate
from spreeze_zmq.errors import ChannelError

__all__ = [
    "ENDS",
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
    def more_endpoints(self) -> Collection[str]: ...
    @property
    def kinds(self) -> Collection[str]: ...
    @property
    def high_water_mark(self) -> int: ...
    @property
    def socket_buffer_bytes(self) -> int: ...


def open_channel(plan: ChannelPlan, end: str, sender: str, incarnation: int, index: int = 0) -> Channel:
    """The ``end`` (push, pull, pub or sub) of a channel of the plan; pull and pub bind it.

    Where several processes pull, each binds an endpoint of its own, ``index`` saying which, and who pushes
    connects to all of them.

    Raises:
        ChannelError: the channel has no endpoint yet, or it cannot be had.
    """
    if plan.endpoint is None:
        raise ChannelError("a channel without an endpoint: the plan has not been placed in a run's folder")
    kind, bind = ENDS[end]
    endpoints = (plan.endpoint, *plan.more_endpoints)
    if bind and not index < len(endpoints):
        raise ChannelError(f"{sender} has no endpoint to bind: the plan has places for {len(endpoints)}")
    return kind(
        endpoints[index] if bind else plan.endpoint,
        more_endpoints=() if bind else plan.more_endpoints,
        sender=sender,
        incarnation=incarnation,
        bind=bind,
        kinds=plan.kinds,
        high_water_mark=plan.high_water_mark,
        socket_buffer_bytes=plan.socket_buffer_bytes,
    )
