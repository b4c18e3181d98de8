"""A peer that speaks ZMTP by hand and announces a frame without end."""

import socket
import struct
import time

import psutil
import pytest

from spreeze_zmq.nodes.head import KINDS
from spreeze_zmq.wire import MAX_FRAME_BYTES
from spreeze_zmq.wire.channels import Publisher, Puller, Pusher, Router, SocketFolder
from spreeze_zmq.wire.channels.connections import SMALL_FRAME_BYTES, TINY_FRAME_BYTES
from tests.unit.wire.channels.conftest import refused_by

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


@pytest.fixture
def place():
    """A folder for sockets, whose path is short whatever the one of temporary files is."""
    folder = SocketFolder.create("raw")
    yield folder.path
    folder.remove()


def ready(kind):
    """The last words of a handshake, of a socket of this kind."""
    return b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind


def connected(endpoint, kind=b"PUSH"):
    """A connection after the handshake."""
    scheme, _, place = str(endpoint).rpartition("://")
    host, _, port = place.rpartition(":")
    peer = socket.socket(socket.AF_INET if scheme == "tcp" else socket.AF_UNIX)
    peer.settimeout(10)
    peer.connect((host, int(port)) if scheme == "tcp" else place)
    peer.sendall(GREETING)
    got = b""
    while len(got) < 64:
        got += peer.recv(64 - len(got))
    peer.sendall(bytes((4, len(ready(kind)))) + ready(kind))
    assert peer.recv(256)[:1] == b"\x04"
    return peer


def sent_until_closed(peer, frame_bytes, at_most):
    """Announce a frame, send of it until the other end hangs up; returns the bytes that it took."""
    peer.sendall(b"\x02" + struct.pack(">Q", frame_bytes))
    sent = 0
    try:
        while sent < at_most:
            sent += peer.send(bytes(65536))
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


@pytest.mark.parametrize(
    ("kinds", "frame_bytes"),
    [
        (("report", "hello"), SMALL_FRAME_BYTES + 1),
        (("report",), 1 << 62),
        (("rollout",), MAX_FRAME_BYTES + 1),
    ],
)
def test_a_frame_that_is_too_large_closes_the_connection(place, kinds, frame_bytes):
    """Before memory is taken for it; others are heard as before."""
    puller = Puller(f"ipc://{place}/report", bind=True, kinds=kinds)
    peer = connected(place / "report")
    before = psutil.Process().memory_info().rss
    assert sent_until_closed(peer, frame_bytes, 64 << 20) < 8 << 20
    assert psutil.Process().memory_info().rss - before < 16 << 20
    peer.close()
    other = connected(place / "report")
    other.sendall(b"\x00\x01\x80")  # a whole message: an empty map
    until_s = time.monotonic() + 60
    while not refused_by(puller) and time.monotonic() < until_s:
        assert puller.pull(0.1) is None
    assert refused_by(puller) == {"missing_key": 1}
    other.close()
    puller.close()


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize(
    ("kind", "kinds", "peer_is", "most_bytes"),
    [
        (Router, KINDS, b"DEALER", SMALL_FRAME_BYTES),
        (Publisher, ("policy",), b"SUB", TINY_FRAME_BYTES),
        (Pusher, ("rollout",), b"PULL", TINY_FRAME_BYTES),
        (Puller, ("report",), b"PUSH", SMALL_FRAME_BYTES),
    ],
)
def test_no_end_takes_a_larger_frame_than_may_come_to_it(place, transport, kind, kinds, peer_is, most_bytes):
    """Whatever is large that it sends itself: at the door of machines, from subscribers."""
    endpoint = f"ipc://{place}/end" if transport == "ipc" else "tcp://127.0.0.1:*"
    end = kind(endpoint, bind=True, kinds=kinds)
    for announced in (most_bytes + 1, 10**10, 1 << 63):
        peer = connected(end.endpoint, peer_is)
        assert sent_until_closed(peer, announced, 64 << 20) < 8 << 20
        peer.close()
    peer = connected(end.endpoint, peer_is)
    peer.sendall(b"\x02" + struct.pack(">Q", most_bytes) + bytes(most_bytes))
    peer.settimeout(0.1)
    with pytest.raises(TimeoutError):  # nobody has hung up
        peer.recv(1)
    peer.close()
    end.close()


def test_a_message_of_frames_without_end_takes_the_memory_that_it_sends_until_its_peer_hangs_up(place):
    """ZeroMQ has no bound for it, see PROTOCOL.md; others are heard meanwhile, and nothing stays taken."""
    puller = Puller(f"ipc://{place}/report", bind=True, kinds=("report",))
    other, taken, own = connected(place / "report"), [], psutil.Process()
    for number in range(3):
        before = own.num_fds()
        peer = connected(place / "report")
        for _ in range(48):
            peer.sendall(b"\x03" + struct.pack(">Q", 1 << 20) + bytes(1 << 20))
        other.sendall(b"\x00\x01\x80")  # a whole message: an empty map
        until_s = time.monotonic() + 60
        while refused_by(puller)["missing_key"] <= number and time.monotonic() < until_s:
            assert puller.pull(0.1) is None
        assert refused_by(puller) == {"missing_key": number + 1}
        taken.append(own.memory_info().rss)
        peer.close()
        while own.num_fds() > before:  # ZeroMQ's end of the connection
            assert time.monotonic() < until_s
            assert puller.pull(0.01) is None
        time.sleep(0.3)
    assert taken[2] - taken[0] < 24 << 20, "each peer's 48 MiB should be used again"
    other.close()
    puller.close()
