"""One wait on any number of channels, with a deadline."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
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
        """Those of the channels that are ready; empty at the timeout.

        Args:
            readable: channels with a message waiting, or file descriptors. A publisher is ready when somebody
                has subscribed; it has served them when it is returned.
            writable: channels with a place for a message.
            timeout_s: longest wait, to the millisecond; 0 only looks.
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
        _serve(ready)
        return ready


def _serve(ready: Collection[Any]) -> None:
    for channel in ready:
        if isinstance(channel, Publisher):
            channel.serve()
