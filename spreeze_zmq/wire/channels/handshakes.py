"""The CURVE handshakes of a tcp socket: its keys, and the failures that ZeroMQ does not report."""

from __future__ import annotations

import logging
import math
import select
import socket as sockets
import time
from collections.abc import Callable

import zmq

from spreeze_zmq.base.endpoints import Keys, keys_path
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire.channels.connections import next_event
from spreeze_zmq.wire.channels.contexts import DOMAIN

log = logging.getLogger("spreeze")

#: Failures without a success after which a connecting end gives up. ZeroMQ tries five times a second, and a
#: try fails if the other end dies during the handshake.
TRIES = 10
#: A ZeroMQ peer tries again within this time.
TRIED_AGAIN_S = 1.0
#: The first bytes that a ZeroMQ peer sends to who connects, and that it expects: a length between two marks.
SIGNATURE = b"\xff" + (1).to_bytes(8, "big") + b"\x7f"
#: Longest time until the other end answers, and how much of it a look at the answer waits.
ANSWERED_S, LOOK_S = 2.0, 0.05
_MADE = zmq.Event.CONNECTED | zmq.Event.ACCEPTED
_EVENTS = (
    _MADE
    | zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


def make_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


class Probe:
    """Asks whether a ZeroMQ peer accepts the connections at a tcp endpoint: one greets who connects. A proxy
    or a tunnel accepts before there is one, and closes the connection or says nothing.
    """

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._connection = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM)
        self._connection.setblocking(False)
        self._connection.connect_ex((host, int(port)))
        self._until_s = time.monotonic() + ANSWERED_S
        self._heard, self._greeted = b"", False

    def answer(self) -> bool | None:
        """Whether it is one; None while that is not known. Waits up to ``LOOK_S``."""
        look_until_s = time.monotonic() + LOOK_S
        while (left_s := look_until_s - time.monotonic()) > 0:
            wanted = [] if self._greeted else [self._connection]
            if (
                any(select.select([self._connection], wanted, [], left_s))
                and (found := self._look()) is not None
            ):
                return found
        return None if time.monotonic() < self._until_s else False

    def _look(self) -> bool | None:
        try:
            if not self._greeted:
                self._connection.send(SIGNATURE)
                self._greeted = True
            if not (heard := self._connection.recv(len(SIGNATURE) - len(self._heard))):
                return False
        except BlockingIOError:
            return None
        except OSError:
            return False
        self._heard += heard
        if len(self._heard) < len(SIGNATURE):
            return None
        return self._heard[:1] + self._heard[-1:] == SIGNATURE[:1] + SIGNATURE[-1:]

    def close(self) -> None:
        self._connection.close()


class Handshakes:
    """Sets a socket's keys, and counts its failed handshakes. A connecting end counts those with ZeroMQ peers
    alone.

    Args:
        socket: neither bound nor connected yet.
        keys: the keys of this process.
        bind: the socket will bind.
        endpoint: its endpoint in messages.
        is_looked_at: others look whether anybody listens at the endpoint, see :meth:`_is_strangers`.
        refuse: called with a ``bad_keys`` error for each failed handshake.

    Attributes:
        on_connected: called with the descriptor of each connection that is made.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        keys: Keys,
        *,
        bind: bool,
        endpoint: str,
        is_looked_at: bool,
        refuse: Callable[[WireError], None],
    ) -> None:
        self._socket, self._bind, self._refuse, self._endpoint = socket, bind, refuse, endpoint
        self._is_looked_at = is_looked_at
        self._failed, self._succeeded = 0, False
        self._unexplained, self._no_peer = 0, False
        self._closed_early_s = -math.inf
        self._probe: Probe | None = None
        self.on_connected: Callable[[int], None] = lambda descriptor: None
        socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
        if bind:
            socket.curve_server = True
            socket.zap_domain = DOMAIN.encode()
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an authenticator, refuse all
            self._why = f"{endpoint} refused somebody who does not hold our keys"
        else:
            socket.curve_serverkey = (keys.server or keys.public).encode()
            self._why = f"{endpoint} does not accept {_whose(keys)}"
        self._monitor = socket.get_monitor_socket(_EVENTS)

    @property
    def why_refused(self) -> str:
        """Why the other end will never accept this one; empty while it may, or once it has."""
        return self._why if self._is_refused and not self._succeeded else ""

    @property
    def is_replaced(self) -> bool:
        """Whether who accepted this end is gone, and somebody else is there who does not."""
        return self._is_refused and self._succeeded

    @property
    def _is_refused(self) -> bool:
        return self._failed >= TRIES and not self._bind

    def serve(self) -> None:
        """Count the handshakes since the last call; costs one look at a queue if there are none."""
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event, value = next_event(self._monitor)
            if event & _MADE:
                self.on_connected(value)
            elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._succeeded, self._unexplained, self._failed = True, 0, 0
            elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:  # after its refusal ZeroMQ does not try again
                self._fail(1)
                self._failed += TRIES
            elif event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL or self._is_strangers():
                self._unexplained += 1
        if self._unexplained and (self._bind or self._is_a_peers()):
            self._fail(self._unexplained)
            self._unexplained = 0

    def _is_strangers(self) -> bool:
        """Whether a connection that was closed early was a stranger's. Where others look whether anybody
        listens, it was if another had been soon before: a ZeroMQ peer with other keys tries again.
        """
        if not self._is_looked_at:
            return True
        before_s, self._closed_early_s = self._closed_early_s, time.monotonic()
        return self._closed_early_s - before_s < TRIED_AGAIN_S

    def _fail(self, tries: int) -> None:
        self._failed += tries
        for _ in range(tries):
            self._refuse(WireError("bad_keys", self._why))

    def _is_a_peers(self) -> bool:
        """Whether a ZeroMQ peer is behind the unexplained failures; forgets them if it is not."""
        self._probe = self._probe or Probe(self._endpoint)
        if (is_peer := self._probe.answer()) is None:
            return False
        self._probe.close()
        self._probe = None
        if not is_peer and not self._no_peer:
            log.info(
                "%s: connections are accepted, but by no ZeroMQ peer yet: waiting for it", self._endpoint
            )
        if not is_peer or self._no_peer:  # those before the peer was there
            self._failed = self._unexplained = 0
        self._no_peer = not is_peer
        return is_peer

    def close(self) -> None:
        self.serve()
        if self._probe is not None:
            self._probe.close()
        self._socket.disable_monitor()


def _whose(keys: Keys) -> str:
    """Whose keys do not fit, and what to do about it."""
    if keys.server:
        return "this machine's key: it is that of another run, or was taken back"
    return (
        f"our keys ({keys_path()}), so nothing is sent or received: who binds it has others, or none; copy "
        "that file from there and start this process again"
    )
