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
#: The same where the head is lost, which may come back within this time.
PATIENCE_S = 120.0
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
        """Have it end as soon as what waits here to be sent has arrived at the head's machine, or after
        ``flush_s``; does not wait for that. Nothing is received any more.
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


class Relays:
    """The relays of a machine that takes part in a run, or does again: the one of now, and earlier ones that
    still send what the machine had before it lost the head.
    """

    def __init__(self) -> None:
        self.now: RelayThread | None = None
        self._earlier: list[RelayThread] = []

    @property
    def owes(self) -> bool:
        """Whether an earlier one has not sent all yet."""
        return any(relay.is_alive() for relay in self._earlier)

    @property
    def is_flushing(self) -> bool:
        """Whether the one of now has been told to end, and is sending what is left."""
        return self.now is not None and self.now.is_ending and self.now.is_alive()

    def open(self, wires: Mapping[str, Wire]) -> None:
        """Have one that forwards."""
        if self.now is None or self.now.is_ending:
            self.now = RelayThread(wires, before=self.now)

    def end(self) -> None:
        """Have the one of now end, as nobody sends any more."""
        if self.now is not None:
            self.now.end()

    def check(self) -> None:
        """Raise what the one of now has ended of by itself."""
        if self.now is not None and self.now.failure is not None:
            raise self.now.failure

    def leave(self, *, is_lost: bool) -> None:
        """End the one of now, and wait for that unless the head is lost: it goes on in case the head can be
        reached again.
        """
        relay, self.now = self.now, None
        if relay is not None and is_lost:
            relay.end(PATIENCE_S)
            self._earlier = [*filter(RelayThread.is_alive, self._earlier), relay]
        elif relay is not None:
            relay.end()
            relay.join()
