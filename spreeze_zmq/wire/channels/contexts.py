"""What a thread has of ZeroMQ: its context, and the keys that it accepts, until it ends its use of them."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from spreeze_zmq.base.endpoints import Keys
from spreeze_zmq.base.held_back import held_back
from spreeze_zmq.wire.channels.locks import Claim

#: The sockets' domain for the authenticator; a callback for '*' is not called for a named domain.
DOMAIN = "spreeze"


class Authenticator:
    """Accepts clients with known keys: a thread that answers ZeroMQ's authentication requests."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        from zmq.auth.thread import ThreadAuthenticator  # with asyncio and ssl, which few runs need

        self._accepted: set[bytes] = set()
        self._folders: set[Path] = set()
        self._thread = ThreadAuthenticator(context)
        self._thread.start()
        self._thread.configure_curve_callback(DOMAIN, self)

    def accept(self, keys: Keys) -> None:
        """Accept clients that hold these keys, or the guests that its folder names at the time."""
        if keys.guests:
            self._folders.add(Path(keys.guests))
        else:
            self._accepted.add(keys.public.encode())

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a client's public key is accepted; the authenticator calls this."""
        return key in self._accepted or any(is_guest(key, folder) for folder in self._folders)

    def close(self) -> None:
        """Stop the thread; must precede the end of the context."""
        self._thread.stop()


def is_guest(key: bytes, folder: Path) -> bool:
    """Whether a file of the folder holds a public key; a folder that is gone has none."""
    with suppress(OSError):
        return any(path.read_bytes() == key for path in folder.iterdir())
    return False


class _ThisThread(threading.local):
    """What the current thread has of ZeroMQ: its context, and the keys that it accepts.

    A forked process begins with none: pyzmq waits for no messages of a context that another process made.
    """

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.claims_of_closed: list[Claim] = []
        self.authenticator: Authenticator | None = None

    def accept(self, keys: Keys) -> None:
        """Accept holders of these keys at the sockets of this thread."""
        self.authenticator = self.authenticator or Authenticator(self.context)
        self.authenticator.accept(keys)


this_thread = _ThisThread()
os.register_at_fork(after_in_child=lambda: this_thread.__init__())  # type: ignore[misc]


def terminate() -> None:
    """End this thread's use of ZeroMQ after queued messages have left or their linger time is over."""
    if this_thread.authenticator is not None:
        this_thread.authenticator.close()
        this_thread.authenticator = None
    # A handler of a signal would end the wait, and what is queued would be lost.
    with held_back(signal.valid_signals()):
        this_thread.context.destroy()
    this_thread.context = zmq.Context()
    while this_thread.claims_of_closed:
        this_thread.claims_of_closed.pop().release()
