"""The state of each thread that opens channels: its ZeroMQ context and the keys that it accepts."""

from __future__ import annotations

import threading
from typing import Any

import zmq

from spreeze_zmq.channels.curve import Holders
from spreeze_zmq.channels.folder import Claim
from spreeze_zmq.plan.keys import Keys


class _Own(threading.local):
    """The attributes of the current thread."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.claims_of_closed: list[Claim] = []
        self.holders: Holders | None = None

    def accept(self, keys: Keys) -> None:
        """Accept holders of these keys at the sockets of this thread."""
        self.holders = self.holders or Holders(self.context)
        self.holders.accept(keys)


own = _Own()


def terminate() -> None:
    """End this thread's use of ZeroMQ after queued messages have left or their linger time is over."""
    if own.holders is not None:
        own.holders.close()
        own.holders = None
    own.context.destroy()
    own.context = zmq.Context()
    while own.claims_of_closed:
        own.claims_of_closed.pop().release()
