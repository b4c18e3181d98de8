"""One channel, two addresses: ipc for this machine, tcp with keys for the others, who may be turned out."""

import socket
import threading
import time
from dataclasses import replace

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.nodes.load import is_closed
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Dealer, Publisher, Puller, Pusher, Router, Subscriber, make_keys, poll
from tests.unit.wire.channels.conftest import TIMEOUT_S, refused_by, weights

ANY_PORT = "tcp://127.0.0.1:*"


@pytest.fixture
def guests(tmp_path):
    """A folder with one accepted key, which ``key`` has."""
    folder = tmp_path / "guests"
    folder.mkdir()
    return folder


@pytest.fixture
def keys(guests):
    """Those of who binds, and of a guest."""
    head, guest = make_keys(), make_keys()
    (guests / "node-1").write_text(guest.public)
    return replace(head, guests=str(guests)), replace(guest, server=head.public)


def test_both_addresses_lead_to_one_end(bench, keys):
    """Processes here need no keys, those elsewhere do."""
    head, guest = keys
    puller = bench.open(Puller, keys=head, remote=ANY_PORT, socket_buffer_bytes=16384)
    here = bench.open(Pusher)
    there = bench.open(Pusher, endpoint=puller.remote, keys=guest)
    for pusher, version in ((here, 1), (there, 2)):
        assert pusher.push(weights(version), TIMEOUT_S)
        assert puller.pull(TIMEOUT_S).fields["version"] == version
    publisher = bench.open(Publisher, "other", keys=head, remote=ANY_PORT)
    near = bench.open(Subscriber, "other")
    bench.joined(publisher)
    far = bench.open(Subscriber, endpoint=publisher.remote, keys=guest)
    bench.joined(publisher)
    publisher.publish(weights(3))
    for subscriber in (near, far):
        bench.arrived(subscriber)
        assert subscriber.newest().fields["version"] == 3


def test_a_key_that_was_taken_back_opens_nothing(bench, keys, guests):
    """The next connection is refused, and either end says so; the message names no file of the user's."""
    head, guest = keys
    puller = bench.open(Puller, keys=head, remote=ANY_PORT)
    (guests / "node-1").unlink()
    late = bench.open(Pusher, endpoint=puller.remote, keys=guest)
    late.try_push(weights(1))
    until_s = time.monotonic() + TIMEOUT_S
    while not refused_by(puller)["bad_keys"]:
        assert time.monotonic() < until_s
        assert poll([puller], timeout_s=0.1) == set()
    assert puller.pull() is None
    (guests / "node-1").write_text(guest.public)
    again = bench.open(Pusher, endpoint=puller.remote, keys=guest)
    assert again.push(weights(2), TIMEOUT_S)
    assert puller.pull(TIMEOUT_S).fields["version"] == 2


def test_a_router_answers_whom_it_chooses(bench):
    """Two peers say something; each gets its own answer, and what is no message is refused."""
    hub = bench.open(Router, "hub", bind=True, kinds=("beat", "leave"))
    peers = [bench.open(Dealer, "hub", sender=name, kinds=("beat", "leave")) for name in ("a", "b")]
    for number, peer in enumerate(peers):
        assert peer.send(Message("beat", {"processes": {str(number): {}}}))
    addresses = {}
    while len(addresses) < len(peers):
        bench.arrived(hub)
        while (received := hub.receive()) is not None:
            addresses[received[1].sender] = received[0]
    assert hub.send(addresses["b"], Message("leave", {"code": 0, "reason": "over"}))
    bench.arrived(peers[1])
    assert peers[1].receive().fields["reason"] == "over"
    assert not poll([peers[0]], timeout_s=0.1)
    with pytest.raises(WireError, match="does not travel"):
        peers[0].send(Message("stop", {"roles": [], "reason": ""}))
    peers[0].socket.send(b"nonsense")
    bench.arrived(hub)
    assert hub.receive() is None
    assert refused_by(hub)["header_not_map"] + refused_by(hub)["bad_header"] == 1


@pytest.mark.parametrize(("closes", "found"), [(True, True), (False, None)])
def test_a_tunnel_to_where_nobody_listens_is_nobody(closes, found):
    """It closes the connection; who says nothing may be frozen, and is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if closes:
            threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        assert is_closed(f"tcp://127.0.0.1:{server.getsockname()[1]}") is found


def test_who_only_looks_whether_anybody_listens_is_no_stranger(bench, keys):
    """A machine that was cut off does so, and ZeroMQ tells of it as of a handshake that failed."""
    head, guest = keys
    hub = bench.open(Router, endpoint=ANY_PORT, bind=True, keys=head)
    assert is_closed(hub.endpoint) is False
    poll([hub], timeout_s=0.3)
    assert not refused_by(hub)
    stranger = bench.open(Dealer, endpoint=hub.endpoint, keys=replace(make_keys(), server=guest.server))
    stranger.send(weights(1))
    while not refused_by(hub)["bad_keys"]:
        poll([hub], timeout_s=0.1)
