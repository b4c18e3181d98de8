"""The state of each thread that opens channels: its ZeroMQ context and the keys that it accepts."""

from __future__ import annotations

import threading
from typing import Any

import zmq

from spreeze_zmq.base.endpoints import Keys
from spreeze_zmq.wire.channels.curve import Authenticator
from spreeze_zmq.wire.channels.folder import Claim


class _ThisThread(threading.local):
    """The attributes of the current thread."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.claims_of_closed: list[Claim] = []
        self.authenticator: Authenticator | None = None

    def accept(self, keys: Keys) -> None:
        """Accept holders of these keys at the sockets of this thread."""
        self.authenticator = self.authenticator or Authenticator(self.context)
        self.authenticator.accept(keys)


this_thread = _ThisThread()


def terminate() -> None:
    """End this thread's use of ZeroMQ after queued messages have left or their linger time is over."""
    if this_thread.authenticator is not None:
        this_thread.authenticator.close()
        this_thread.authenticator = None
    this_thread.context.destroy()
    this_thread.context = zmq.Context()
    while this_thread.claims_of_closed:
        this_thread.claims_of_closed.pop().release()
