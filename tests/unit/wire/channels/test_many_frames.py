"""A message of very many frames, for which ZeroMQ has no bound, stops nobody who receives it."""

import time

import pytest
import zmq

from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.channels import Funnel, Inbox, Puller, Pusher, Router
from spreeze_zmq.wire.channels.sockets import FRAMES_KEPT
from tests.pace import slowness
from tests.unit.wire.channels.conftest import TIMEOUT_S, refused_by

FRAMES = 200_000
TAKES = {Puller: "pull", Inbox: "next", Router: "receive"}
STOP = Message("stop_request", {"reason": "enough"}, sender="launcher", incarnation=1)
#: CPU time of one call; what takes them all at once needs half a second.
MOST_S = 0.15


def flood(socket, frames=FRAMES):
    """One message of so many frames behind its header."""
    for _ in range(frames):
        socket.send(b"", zmq.SNDMORE)
    socket.send(b"")


@pytest.fixture
def stranger(bench):
    """Connects a plain socket to an end."""
    context = zmq.Context()

    def connect(channel, kind):
        socket = context.socket(kind)
        socket.connect(channel.endpoint)
        return socket

    yield connect
    context.destroy(linger=0)


def calls(receive, until):
    """Call until it is true; returns the most CPU time of a call."""
    longest_s, until_s = 0.0, time.monotonic() + TIMEOUT_S
    while not until() and time.monotonic() < until_s:
        began_s = time.thread_time()
        receive()
        longest_s = max(longest_s, time.thread_time() - began_s)
    assert until()
    return longest_s


@pytest.mark.parametrize("kind", TAKES)
def test_it_is_refused_in_pieces_and_the_next_message_comes(bench, stranger, kind):
    """Little more is kept of it than any message may have."""
    channel, came, lengths = bench.open(kind, kinds=("stop_request",), bind=True), [], []
    channel.record = lambda sent, frames: lengths.append(len(frames))

    def take():
        if kind is Inbox:
            channel.gather()
        came.extend(filter(None, [getattr(channel, TAKES[kind])()]))

    socket = stranger(channel, zmq.DEALER if kind is Router else zmq.PUSH)
    for _ in range(2):
        came.clear()
        flood(socket)
        socket.send_multipart(encode(STOP))
        assert calls(take, lambda: len(came) == 1) < MOST_S * slowness()
    assert refused_by(channel) == {"too_many_arrays": 2}
    kept = FRAMES_KEPT - (kind is Router)  # one of them is the address
    assert lengths in ([], [kept, 1] * 2)


def test_it_is_forwarded_as_one_that_its_receiver_refuses(bench, stranger):
    """Where a machine sends on what its processes send."""
    end = bench.open(Puller, "far")
    funnel = Funnel(bench.open(Puller, "near"), bench.open(Pusher, "far"))
    socket = stranger(funnel.near, zmq.PUSH)
    flood(socket)
    socket.send_multipart(encode(STOP))
    came = []

    def arrived():
        came.extend(filter(None, [end.pull()]))
        return len(came) == 1

    assert calls(funnel.serve, arrived) < MOST_S * slowness()
    assert refused_by(end) == {"too_many_arrays": 1}
