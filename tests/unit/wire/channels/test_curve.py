"""Keys on tcp: their holders talk, nobody else does, and either end says so."""

import contextlib
import json
import logging
import os
import socket
import stat
import threading
import time

import pytest
import zmq

from spreeze_zmq.base.endpoints import keys_path, read_keys, write_keys
from spreeze_zmq.base.errors import ChannelError, InputError
from spreeze_zmq.commands import spreeze
from spreeze_zmq.wire.channels import Publisher, Puller, Pusher, Subscriber, make_keys, poll
from spreeze_zmq.wire.channels.handshakes import TRIES
from tests.unit.wire.channels.conftest import TIMEOUT_S, refused_by, weights

ANY_PORT = "tcp://127.0.0.1:*"


@pytest.fixture
def keys():
    """One pair."""
    return make_keys()


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A user without keys; the path where they will be."""
    path = tmp_path / "home" / "keys.json"
    monkeypatch.setenv("SPREEZE_KEYS", str(path))
    return path


def test_holders_of_the_keys_talk(bench, keys):
    """Both patterns, in both directions, over an encrypted connection."""
    puller = bench.open(Puller, endpoint=ANY_PORT, keys=keys)
    pusher = bench.open(Pusher, endpoint=puller.endpoint, keys=keys)
    assert pusher.push(weights(3), TIMEOUT_S)
    assert puller.pull(TIMEOUT_S).fields["version"] == 3
    publisher = bench.open(Publisher, endpoint=ANY_PORT, keys=keys)
    subscriber = bench.open(Subscriber, endpoint=publisher.endpoint, keys=keys)
    bench.joined(publisher)
    publisher.publish(weights(4, num_bytes=1 << 20))
    bench.arrived(subscriber)
    assert subscriber.receive().fields["version"] == 4
    assert not refused_by(puller)
    assert not refused_by(subscriber)


def test_a_stranger_is_refused_and_counted(bench, keys, caplog):
    """Without keys, with others, and with others of its own that knows our public one."""
    puller = bench.open(Puller, endpoint=ANY_PORT, keys=keys)
    other = make_keys()
    strangers = [(None, None), (other, other.public), (other, keys.public)]
    context, refused = zmq.Context(), 0
    for own, server in strangers:
        socket = context.socket(zmq.PUSH)
        socket.linger = 0
        if own is not None:
            socket.curve_publickey, socket.curve_secretkey = own.public.encode(), own.secret.encode()
            socket.curve_serverkey = server.encode()
        socket.connect(puller.endpoint)
        with contextlib.suppress(zmq.Again):  # it may have been refused by now
            socket.send(b"let me in", zmq.DONTWAIT)
        until_s = time.monotonic() + TIMEOUT_S
        while refused_by(puller)["bad_keys"] <= refused:
            assert time.monotonic() < until_s
            assert poll([puller], timeout_s=0.1) == set()
        socket.close()
        poll([puller], timeout_s=0.3)
        refused = refused_by(puller)["bad_keys"]
    context.destroy()
    assert caplog.text.count("refused somebody who does not hold our keys") == 1
    friend = bench.open(Pusher, endpoint=puller.endpoint, keys=keys)
    assert friend.push(weights(1), TIMEOUT_S)
    assert puller.pull(TIMEOUT_S).fields["version"] == 1


@pytest.mark.parametrize("kind", [Pusher, Subscriber])
@pytest.mark.parametrize("with_others", [True, False])
def test_a_peer_with_wrong_keys_says_so_in_a_line(bench, keys, own_file, caplog, kind, with_others):
    """Instead of waiting in silence; also where the other end expects no keys."""
    binder = Puller if kind is Pusher else Publisher
    bound = bench.open(binder, endpoint=ANY_PORT, keys=make_keys() if with_others else None)
    peer = bench.open(kind, endpoint=bound.endpoint, keys=keys)
    with caplog.at_level(logging.WARNING):
        until_s = time.monotonic() + TIMEOUT_S
        while refused_by(peer)["bad_keys"] <= (2 if with_others else 0) and time.monotonic() < until_s:
            poll([peer] if kind is Subscriber else [], [peer], timeout_s=0.1)
            poll([bound], timeout_s=0.01)
    lines = [r.getMessage() for r in caplog.records if "does not accept our keys" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"{bound.endpoint} does not accept our keys ({own_file}), so nothing is sent")


class Proxy:
    """A tcp proxy as ssh and service meshes have one: it accepts at once, closes what it cannot forward, and
    forwards once there is an ``upstream``.
    """

    def __init__(self):
        self.upstream, self.num_accepted = None, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self.num_accepted += 1
                if self.upstream is None:
                    here.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self.upstream))
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _copy(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        """Accept no more."""
        self._listener.close()


def test_a_proxy_that_accepts_before_the_other_end_is_there_is_waited_for(bench, keys, own_file, caplog):
    """However often it hangs up; nobody is said to have other keys."""
    proxy = Proxy()
    pusher = bench.open(Pusher, endpoint=proxy.endpoint, keys=keys)
    with caplog.at_level(logging.INFO):
        assert pusher.push(weights(3), TIMEOUT_S)  # queued until somebody takes it
        while proxy.num_accepted < 3 * TRIES:
            poll([pusher], timeout_s=0.1)
            assert pusher.attend() == ""
    puller = bench.open(Puller, endpoint=ANY_PORT, keys=keys)
    proxy.upstream = int(puller.endpoint.rpartition(":")[2])
    assert puller.pull(TIMEOUT_S).fields["version"] == 3
    assert pusher.attend() == ""
    proxy.close()
    assert not refused_by(pusher)
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{proxy.endpoint}: connections are accepted, but by no ZeroMQ peer yet: waiting for it"]


@pytest.mark.parametrize("through_proxy", [False, True])
def test_wrong_keys_end_the_wait_within_seconds(bench, keys, own_file, through_proxy):
    """Also where they are found at the end of a proxy that had to wait for its own peer."""
    proxy, bound = Proxy(), bench.open(Puller, endpoint=ANY_PORT, keys=make_keys())
    peer = bench.open(Pusher, endpoint=proxy.endpoint if through_proxy else bound.endpoint, keys=keys)
    while through_proxy and proxy.num_accepted < TRIES:
        poll([peer], timeout_s=0.1)
    proxy.upstream, began_s = int(bound.endpoint.rpartition(":")[2]), time.monotonic()
    while not (why := peer.attend()) and time.monotonic() < began_s + TIMEOUT_S:
        poll([bound], timeout_s=0.1)
    proxy.close()
    assert f"{peer.endpoint} does not accept our keys ({own_file})" in why


def test_another_with_other_keys_in_the_place_of_who_accepted_us_is_noticed(bench, keys):
    """As another run at the address of one that has died."""
    proxy, first = Proxy(), bench.open(Puller, endpoint=ANY_PORT, keys=keys)
    proxy.upstream = int(first.endpoint.rpartition(":")[2])
    pusher = bench.open(Pusher, endpoint=proxy.endpoint, keys=keys)
    assert pusher.push(weights(3), TIMEOUT_S)
    bench.arrived(first)
    pusher.attend()
    assert not pusher.is_replaced
    other = bench.open(Puller, endpoint=ANY_PORT, keys=make_keys())
    proxy.upstream = int(other.endpoint.rpartition(":")[2])
    bench.channels.remove(first)
    first.close()
    until_s = time.monotonic() + TIMEOUT_S
    while not pusher.is_replaced and time.monotonic() < until_s:
        poll([pusher, other], timeout_s=0.1)
    proxy.close()
    assert pusher.is_replaced


def test_without_keys_nothing_is_bound_beyond_loopback(keys):
    """With keys it is; this machine's other addresses count as beyond."""
    with pytest.raises(ChannelError, match="without keys tcp stays on loopback"):
        Puller("tcp://0.0.0.0:*", bind=True)
    puller = Puller("tcp://0.0.0.0:*", bind=True, keys=keys)
    puller.close()


def test_keys_are_made_once_and_kept_to_their_user(own_file, capsys):
    """Mode 0600 in a folder of mode 0700; neither of them is ever printed."""
    assert spreeze.main(["keys"]) == 0
    keys = read_keys()
    own_file.write_bytes(b"\xef\xbb\xbf" + own_file.read_bytes())  # a byte order mark, as of some editors
    assert read_keys() == keys
    assert stat.S_IMODE(own_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_file.parent.stat().st_mode) == 0o700
    assert spreeze.main(["keys"]) == 0
    assert read_keys() == keys
    assert spreeze.main(["keys", "--new"]) == 0
    assert read_keys() != keys
    said = capsys.readouterr().out
    assert said.count(str(own_file)) == 3
    for secret in (keys.secret, keys.public, read_keys().secret):
        assert secret not in said
    assert keys.secret not in repr(keys)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0, "make them with `spreeze keys`"),
        ({"public": "x" * 40, "secret": "y" * 40}, 0o644, "chmod 600"),
        ({"public": "x" * 39, "secret": "y" * 40}, 0o600, "no pair of keys"),
        ({"public": "x" * 40}, 0o600, "no pair of keys"),
        ([], 0o600, "no pair of keys"),
    ],
)
def test_keys_that_cannot_be_used_are_named(own_file, content, mode, said):
    """One line with the file and how to mend it."""
    if content is not None:
        own_file.parent.mkdir()
        own_file.write_text(json.dumps(content))
        own_file.chmod(mode)
    with pytest.raises(InputError, match=said) as caught:
        read_keys()
    assert str(caught.value).startswith(f"{own_file}: ")
    assert "\n" not in str(caught.value)


def test_keys_have_a_place_in_the_users_home(monkeypatch, tmp_path, keys):
    """Where configuration belongs; a variable names another."""
    monkeypatch.delenv("SPREEZE_KEYS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert write_keys(keys) == keys_path() == tmp_path / "spreeze" / "keys.json"
    assert read_keys() == keys
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert keys_path() == tmp_path / "me" / ".config" / "spreeze" / "keys.json"
    assert os.environ.get("SPREEZE_KEYS") is None
