"""Channels: named pairs of sockets between components; the only package that imports zmq."""

from __future__ import annotations

from spreeze_zmq.channels.context import terminate
from spreeze_zmq.channels.curve import make_keys
from spreeze_zmq.channels.folder import Claim, SocketFolder
from spreeze_zmq.channels.poller import Poller
from spreeze_zmq.channels.pub_sub import Publisher, Subscriber
from spreeze_zmq.channels.push_pull import Puller, Pusher
from spreeze_zmq.channels.recording import Entry, Recording, RecordingWriter
from spreeze_zmq.channels.sockets import Channel
from spreeze_zmq.errors import ChannelError
from spreeze_zmq.plan.keys import read_keys
from spreeze_zmq.plan.parts import ChannelPlan

__all__ = [
    "ENDS",
    "Claim",
    "Entry",
    "Poller",
    "Publisher",
    "Puller",
    "Pusher",
    "Recording",
    "RecordingWriter",
    "SocketFolder",
    "Subscriber",
    "make_keys",
    "open_channel",
    "terminate",
]

#: Name of an end -> its class and whether it binds.
ENDS: dict[str, tuple[type[Channel], bool]] = {
    "push": (Pusher, False),
    "pull": (Puller, True),
    "pub": (Publisher, True),
    "sub": (Subscriber, False),
}


def open_channel(plan: ChannelPlan, end: str, sender: str, incarnation: int) -> Channel:
    """Open one end of a channel of the plan: pull and pub bind, push and sub connect.

    Raises:
        ChannelError: the channel has no endpoint yet, or the endpoint cannot be bound or connected to.
        InputError: the channel needs the user's keys and there are none.
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
        keys=read_keys() if plan.curve else None,
    )
