"""What a node sees of its own load and of its link to the head."""

from __future__ import annotations

import socket
import time

import psutil

from spreeze_zmq.base.usage import busy_cpu_s
from spreeze_zmq.broker.figures import Rates
from spreeze_zmq.nodes.relay import RelayThread

#: The load of this machine, and of its link, is measured over this time.
LOAD_S = 2.0
#: How long somebody who listens may take to say so.
LOOK_S = 1.0


class Load:
    """Cores that are busy, with whatever program, memory in use, and bytes over the link, as of late."""

    def __init__(self) -> None:
        self._before = time.monotonic(), busy_cpu_s()
        self._busy, self._rates = 0.0, Rates(LOAD_S)

    def figures(self, relay: RelayThread | None) -> dict[str, float]:
        """The figures of a ``beat``.

        Args:
            relay: has the connections that this machine's processes share; None before there is one.
        """
        (began_s, before_s), now = self._before, (time.monotonic(), busy_cpu_s())
        if now[0] - began_s >= LOAD_S:
            self._busy, self._before = (now[1] - before_s) / (now[0] - began_s), now
        found = {"busy": self._busy, "memory_bytes": psutil.virtual_memory().used}
        for way in ("sent", "received"):
            self._rates.add(way, 0 if relay is None else relay.num_bytes(way), now[0])
            found[f"{way}_bytes_per_s"] = self._rates.rate(way, now[0])
        return found


def is_closed(head: str) -> bool | None:
    """Whether nobody listens at an address, although its machine can be reached, or a tunnel does to where
    nobody listens, which closes the connection; None if neither is known. A ZeroMQ peer greets who connects.
    """
    host, _, port = head.removeprefix("tcp://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=LOOK_S) as connection:
            return not connection.recv(1)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except OSError:
        return None
