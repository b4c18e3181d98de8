"""Waits on any number of channels at once, with a deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import zmq

from spreeze_zmq.channels.pub_sub import Publisher
from spreeze_zmq.channels.sockets import Channel


class Poller:
    """Waits until a channel can be read or written."""

    def wait(
        self,
        readable: Iterable[Channel | int] = (),
        writable: Iterable[Channel] = (),
        timeout_s: float = 0.0,
    ) -> set[Any]:
        """The channels that are ready; empty at the timeout.

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
