"""What a machine's processes send and hear goes over one connection for each channel: a thread of the half.

Its sockets have an I/O thread of their own: a beat waits behind no weights. It ends with the half.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from spreeze_zmq.nodes.place import Wire
from spreeze_zmq.wire.channels import Forwarder, forwarding, open_forwarder

#: Longest time for what waits here to leave, once nobody sends any more.
FLUSH_S = 2.0
#: Longest wait for a message: then nobody has sent any for some time.
_QUIET_S = 0.1


class RelayThread(threading.Thread):
    """Forwards until it is told to end.

    Args:
        wires: both ends of each channel.
        before: the last one of this machine, whose sockets have to be closed first.

    Attributes:
        failure: why it has ended by itself; None while it has not.
        forwarders: of each channel, as soon as it is open.
    """

    def __init__(self, wires: Mapping[str, Wire], before: RelayThread | None = None) -> None:
        super().__init__(name="relay", daemon=True)
        self._wires, self._before = wires, before
        self._until_s: float | None = None
        self.failure: Exception | None = None
        self.forwarders: list[Forwarder] = []
        self.start()

    def end(self, flush_s: float = FLUSH_S) -> None:
        """Have it end as soon as what waits here to be sent has left, or after ``flush_s``; does not wait for
        that. Nothing is received any more.
        """
        if self._until_s is None:
            self._until_s = time.monotonic() + flush_s

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return self._until_s is not None

    def num_bytes(self, way: str) -> int:
        """Bytes ``sent`` to the head, or ``received`` from it, so far."""
        return sum(one.num_bytes for one in self.forwarders if one.way == way)

    def run(self) -> None:
        """Forward."""
        if self._before is not None:
            self._before.join()
        forwarders = self.forwarders
        try:
            for wire in self._wires.values():
                forwarders.append(open_forwarder(wire.near, wire.far))
            while self._until_s is None:
                forwarding.forward(forwarders, _QUIET_S)
            funnels = [one for one in forwarders if one.way == "sent"]
            while time.monotonic() < self._until_s and forwarding.forward(funnels, _QUIET_S):
                pass
        except Exception as error:
            self.failure = error
        finally:
            left_s = 0.0 if self._until_s is None else self._until_s - time.monotonic()
            forwarding.close(forwarders, left_s)
