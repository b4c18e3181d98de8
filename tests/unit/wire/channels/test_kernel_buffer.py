"""The kernel's share of what is in flight."""

import contextlib
import socket
import struct
import time

import numpy as np
import pytest

from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Puller, Pusher, SocketFolder, connections

#: Full is a channel that has taken nothing in so many looks, a millisecond apart: time passes for a process
#: that is held up, too.
LOOKS = 500


@pytest.fixture
def folder():
    """A private folder for one test's sockets."""
    made = SocketFolder.create("test")
    yield made
    made.remove()


def fill(endpoint, num_bytes, **options):
    """How many messages of ``num_bytes`` find a place although nobody takes any."""
    puller = Puller(endpoint, bind=True, high_water_mark=2)
    pusher = Pusher(endpoint, high_water_mark=2, **options)
    time.sleep(0.2)  # the connection stands before anything is pushed, as in a run
    count = num_bytes // 8
    message = Message(
        "episodes", {}, {"returns": np.zeros(count, np.float32), "lengths": np.zeros(count, np.int32)}
    )
    pushed = looks = 0
    while looks < LOOKS:
        if pusher.try_push(message):
            pushed, looks = pushed + 1, 0
        else:
            looks += 1
            time.sleep(0.001)  # ZeroMQ's threads need the cores to pass on what they have
    pusher.close()
    puller.close()
    return pushed


def test_a_small_buffer_keeps_few_rollouts_in_flight(folder):
    """Rollouts of 7 KB: about ten with an experience channel's buffer, three times as many without."""
    bounded = fill(folder.endpoint("bounded"), 7000, socket_buffer_bytes=16 * 1024)
    free = fill(folder.endpoint("free"), 7000)
    assert bounded <= 20
    assert free > bounded


def test_the_high_water_mark_alone_bounds_large_messages(folder):
    """What does not fit in the kernel at all is bounded by the two queues and the one under way."""
    assert fill(folder.endpoint("large"), 1_000_000, socket_buffer_bytes=16 * 1024) <= 2 + 2 + 1


def test_a_connection_to_another_machine_holds_few_unsent_bytes():
    """However long its delay is: what is on its way is not among them."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        connections.Upload(f"tcp://127.0.0.1:{server.getsockname()[1]}").begin(connection.fileno())
        taken = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
    assert taken == connections.UNSENT_BYTES


def test_what_the_other_machine_has_not_got_is_owed():
    """Until its kernel has it; of a connection that stands no more nothing can be."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        there = server.accept()[0]
        connection.setblocking(False)
        assert not connections.is_owed(connection)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection.send(bytes(1 << 16))
        assert connections.is_owed(connection)
        there.setblocking(False)
        while connections.is_owed(connection):
            with contextlib.suppress(BlockingIOError):
                there.recv(1 << 16)
        connection.send(b"never read")
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        assert not connections.is_owed(connection)
