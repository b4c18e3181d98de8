"""Channels: named pairs of ZeroMQ sockets between components."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq

from spreeze_zmq.base.endpoints import read_keys
from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.plan.processes import ChannelPlan
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels.contexts import terminate
from spreeze_zmq.wire.channels.folder import SocketFolder
from spreeze_zmq.wire.channels.forwarding import Forwarder, Funnel, Relay, Upstream
from spreeze_zmq.wire.channels.handshakes import make_keys
from spreeze_zmq.wire.channels.locks import Claim, is_locked
from spreeze_zmq.wire.channels.pub_sub import Publisher, Subscriber
from spreeze_zmq.wire.channels.push_pull import Gate, Puller, Pusher
from spreeze_zmq.wire.channels.recording import Entry, RecordingReader, RecordingWriter
from spreeze_zmq.wire.channels.reports import Inbox, Outbox, carries_reports
from spreeze_zmq.wire.channels.router import Dealer, Router
from spreeze_zmq.wire.channels.sockets import Channel

__all__ = [
    "ENDS",
    "SENDING_THREADS",
    "Channel",
    "Claim",
    "Dealer",
    "Entry",
    "Forwarder",
    "Gate",
    "Inbox",
    "Outbox",
    "Publisher",
    "Puller",
    "Pusher",
    "RecordingReader",
    "RecordingWriter",
    "Router",
    "SocketFolder",
    "Subscriber",
    "is_locked",
    "make_keys",
    "open_channel",
    "open_exchange",
    "open_forwarder",
    "poll",
    "terminate",
]

#: What the names of ZeroMQ's threads that send and receive begin with.
SENDING_THREADS = "ZMQbg/IO"
#: Name of an end -> its class and whether it binds.
ENDS: dict[str, tuple[type[Channel], bool]] = {
    "push": (Pusher, False),
    "pull": (Puller, True),
    "pub": (Publisher, True),
    "sub": (Subscriber, False),
    "xsub": (Upstream, False),
}
#: What they are where processes report.
REPORTING: dict[type[Channel], type[Channel]] = {Pusher: Outbox, Puller: Inbox}


def open_channel(plan: ChannelPlan, end: str, sender: str, incarnation: int) -> Channel:
    """Open one end of a channel of the plan: pull and pub bind, push and sub connect. On a machine other than
    the head's all connect.

    Raises:
        ChannelError: the channel has no endpoint yet, or the endpoint cannot be bound or connected to.
        InputError: the channel needs the user's keys and there are none.
    """
    if plan.endpoint is None:
        raise ChannelError("a channel without an endpoint: the plan has not been placed in a run's folder")
    kind, bind = ENDS[end]
    if carries_reports(plan.kinds):
        kind = REPORTING.get(kind, kind)
    if bind and plan.back:
        plan = replace(plan, endpoint=plan.back, curve=True, remote="", socket_buffer_bytes=0)
        bind = False
    remote = plan.remote if bind else ""
    keyed = plan.curve or remote
    assert plan.endpoint is not None
    return kind(
        plan.endpoint,
        sender=sender,
        incarnation=incarnation,
        bind=bind,
        kinds=plan.kinds,
        high_water_mark=plan.high_water_mark,
        socket_buffer_bytes=plan.socket_buffer_bytes,
        keys=read_keys(Path(plan.keys) if plan.keys else None) if keyed else None,
        remote=remote,
    )


def open_forwarder(near: ChannelPlan, far: ChannelPlan) -> Forwarder:
    """Take the place of who binds a channel, for the processes of this machine.

    Args:
        near: the channel as they have it; this end binds it.
        far: as this machine has it, to connect to who binds it elsewhere.

    Raises:
        ChannelError: as :func:`open_channel`.
    """
    if near.pattern == "pub_sub":
        return Relay(open_channel(near, "pub", "", 0), open_channel(far, "xsub", "", 0))
    return Funnel(open_channel(near, "pull", "", 0), open_channel(far, "push", "", 0))


def open_exchange(plan: ChannelPlan, passes: Callable[[Message], bool]) -> Forwarder:
    """Take the place of who binds a channel, at the head, and let it connect to ``back``.

    Args:
        plan: of the channel, as the head has it.
        passes: whether a published message goes on, by its unverified origin and fields.

    Raises:
        ChannelError: as :func:`open_channel`.
    """
    is_published = plan.pattern == "pub_sub"
    near = open_channel(replace(plan, back=""), "pub" if is_published else "pull", "", 0)
    kind: type[Channel] = Upstream if is_published else Pusher
    far = kind(
        plan.back,
        bind=True,
        kinds=plan.kinds,
        high_water_mark=plan.high_water_mark,
        keys=read_keys(Path(plan.keys)),
    )
    return Relay(near, far, passes) if is_published else Funnel(near, far)


def poll(
    readable: Iterable[Channel | int] = (), writable: Iterable[Channel] = (), timeout_s: float = 0.0
) -> set[Any]:
    """Wait until one of these channels is ready; returns the ready ones, none at the timeout.

    Args:
        readable: channels or file descriptors to wait on for a message. A publisher is ready on a new
            subscription, which it answers before this returns.
        writable: channels to wait on for room to send.
        timeout_s: longest wait, rounded up to milliseconds; 0 does not wait.
    """
    waited: dict[Any, Channel | int] = {}
    flags: dict[Any, int] = {}
    for wanted, channels in ((zmq.POLLIN, readable), (zmq.POLLOUT, writable)):
        for channel in channels:
            key = channel.socket if isinstance(channel, Channel) else channel
            waited[key] = channel
            flags[key] = flags.get(key, 0) | wanted
    events = zmq.zmq_poll(list(flags.items()), math.ceil(1000 * timeout_s))
    ready = {waited[key] for key, _ in events}
    for waited_on in waited.values():
        if isinstance(waited_on, Channel):
            waited_on.attend()
    for channel in ready:
        if isinstance(channel, Publisher):
            channel.serve()
    return ready
