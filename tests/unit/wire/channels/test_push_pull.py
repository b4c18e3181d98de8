"""PUSH and PULL: everything arrives, stamped and unharmed, and a full channel says so."""

import gc
import logging
import mmap
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import zmq

from spreeze_zmq.base.errors import ChannelError, EndpointTaken, WireError
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Puller, Pusher, poll
from spreeze_zmq.wire.channels.connections import ZERO_COPY_BYTES
from tests.unit.wire.channels.conftest import TIMEOUT_S, refused_by, weights

LARGE = 4 * ZERO_COPY_BYTES

#: Pushes a number of messages to an endpoint, in one of several ways, and ends as a component does.
PARTING = """
import os, signal, sys
from spreeze_zmq.wire import Message, channels
endpoint, count, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if way == "forked" and os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
signal.signal(signal.SIGALRM, lambda *_: None)
pusher = channels.Pusher(endpoint)
for _ in range(count):
    assert pusher.push(Message("stop_request", {"reason": 20_000 * "x"}), 1.0)
pusher.close()
if way == "signalled":
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
channels.terminate()
os._exit(0)
"""


def fill(pusher, message, quiet_s=0.3):
    """How many messages find a place before nobody has taken one in ten looks, which take ``quiet_s``: of one
    look a process that was held up might see the end alone.
    """
    count = looks = 0
    while looks < 10:
        looks = 0 if (found := pusher.push(message, quiet_s / 10)) else looks + 1
        count += found
    return count


def test_messages_arrive_stamped_and_in_order(bench):
    """Sender, incarnation and sequence are the channel's; the content is the sender's."""
    pusher, puller = bench.pair(sender="sampler-3", incarnation=99)
    for version in range(3):
        assert pusher.push(weights(version), TIMEOUT_S)
    received = [puller.pull(TIMEOUT_S) for _ in range(3)]
    assert [message.sequence for message in received] == [0, 1, 2]
    assert [message.fields["version"] for message in received] == [0, 1, 2]
    assert {(message.sender, message.incarnation) for message in received} == {("sampler-3", 99)}
    assert puller.pull() is None


def test_what_is_pushed_before_the_puller_is_there_waits_for_it(bench):
    """The order of starting does not matter."""
    pusher = bench.open(Pusher)
    assert pusher.try_push(weights(7))
    assert bench.open(Puller).pull(TIMEOUT_S).fields["version"] == 7


@pytest.mark.parametrize("way", ["alone", "forked", "signalled"])
def test_the_last_words_of_a_process_arrive(bench, way):
    """It does not end before they have left; also one whose modules its parent has loaded, and one that hears
    signals meanwhile.
    """
    puller, count = bench.open(Puller), 900
    subprocess.run([sys.executable, "-c", PARTING, puller.endpoint, str(count), way], check=True, timeout=60)
    assert all(puller.pull(TIMEOUT_S) for _ in range(count))


def test_peers_are_served_in_turn(bench):
    """A busy sampler does not shut out the others."""
    puller = bench.open(Puller)
    pushers = [bench.open(Pusher, sender=name) for name in ("sampler-0", "sampler-1")]
    for pusher in pushers:  # one message from each: both are connected
        assert pusher.push(weights(), TIMEOUT_S)
        assert puller.pull(TIMEOUT_S).sender == pusher.sender

    def both_in_each_half(wait_s):
        for pusher in pushers:
            for _ in range(3):
                assert pusher.push(weights(), TIMEOUT_S)
        time.sleep(wait_s)
        # As a puller does: ZeroMQ reads on from the peer that it knows until the socket is polled.
        assert poll([puller], timeout_s=TIMEOUT_S) == {puller}
        senders = [puller.pull(TIMEOUT_S).sender for _ in range(6)]
        return set(senders[:3]) == set(senders[3:]) == {"sampler-0", "sampler-1"}

    # What has not come yet cannot have its turn, and nothing says when all of it is there.
    assert any(map(both_in_each_half, (0.2, 1.0, 3.0)))


# --- nobody writes into what is under way


def test_zeromq_keeps_a_large_array_alive_until_it_is_sent(bench):
    """The sender may forget it; the memory goes when it has left, not before and not never."""
    pusher = bench.open(Pusher)
    message = weights(num_bytes=LARGE, value=3.0)
    alive = weakref.ref(message.arrays["parameters"])
    assert pusher.try_push(message)
    del message
    gc.collect()
    assert alive() is not None
    received = bench.open(Puller).pull(TIMEOUT_S)
    assert (received.arrays["parameters"] == 3.0).all()
    deadline_s = time.monotonic() + TIMEOUT_S
    while alive() is not None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert alive() is None


def test_large_arrays_leave_without_a_copy(bench):
    """What arrives is what the memory holds when it is sent, so nothing was copied when it was pushed."""
    pusher = bench.open(Pusher)
    message = weights(num_bytes=LARGE)
    other_view = message.arrays["parameters"][:]
    assert pusher.try_push(message)
    other_view[:] = 5.0  # a view made before is the one way round the freeze
    assert (bench.open(Puller).pull(TIMEOUT_S).arrays["parameters"] == 5.0).all()


def test_a_large_array_cannot_be_written_after_it_was_pushed(bench):
    """Neither itself nor the buffer that it is a part of."""
    pusher = bench.open(Pusher)
    ring = np.zeros((2, LARGE // 4), np.float32)
    message = Message("critic", weights().fields, {"parameters": ring[0]})
    assert pusher.try_push(message)
    for array in (message.arrays["parameters"], ring):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 1.0


def test_memory_that_cannot_be_frozen_is_copied(bench):
    """A mapped file or another library's tensor may be written again at once."""
    pusher = bench.open(Pusher)
    array = np.frombuffer(mmap.mmap(-1, LARGE), np.float32)
    assert pusher.try_push(Message("critic", weights().fields, {"parameters": array}))
    array[:] = 9.0
    assert (bench.open(Puller).pull(TIMEOUT_S).arrays["parameters"] == 0.0).all()


def test_small_arrays_may_be_written_again_at_once(bench):
    """They are copied when they are pushed."""
    pusher = bench.open(Pusher)
    message = weights(num_bytes=1024, value=2.0)
    assert pusher.try_push(message)
    message.arrays["parameters"][:] = 9.0
    assert (bench.open(Puller).pull(TIMEOUT_S).arrays["parameters"] == 2.0).all()


def test_received_arrays_outlive_their_message_and_channel(bench):
    """They keep the frame that they lie in."""
    pusher, puller = bench.pair()
    assert pusher.push(weights(num_bytes=LARGE, value=4.0), TIMEOUT_S)
    array = puller.pull(TIMEOUT_S).arrays["parameters"]
    puller.close()
    gc.collect()
    assert (array == 4.0).all()
    assert not array.flags.writeable


# --- backpressure


@pytest.mark.parametrize(("num_bytes", "at_most"), [(300_000, 6), (20_000, 8)])
def test_little_is_in_flight_to_a_puller_that_takes_nothing(bench, num_bytes, at_most):
    """Two queues of two, and what the kernel holds: the slack of the balance is what it says."""
    pusher, puller = bench.pair(high_water_mark=2, socket_buffer_bytes=16 * 1024)
    poll([puller], timeout_s=0.1)
    message = weights(num_bytes=num_bytes)
    in_flight = fill(pusher, message)
    assert 4 <= in_flight <= at_most
    assert not pusher.try_push(message)
    assert poll(writable=[pusher], timeout_s=0.05) == set()
    received = [puller.pull(TIMEOUT_S).sequence for _ in range(in_flight)]
    assert received == list(range(in_flight))
    assert poll(writable=[pusher], timeout_s=TIMEOUT_S) == {pusher}


def test_a_push_waits_for_a_place(bench):
    """It goes through as soon as the puller takes something, and says False at its deadline."""
    pusher, puller = bench.pair(high_water_mark=1)
    message = weights(num_bytes=1_000_000)
    fill(pusher, message, quiet_s=0.2)
    began_s = time.monotonic()
    assert not pusher.push(message, 0.1)
    assert 0.09 < time.monotonic() - began_s < 20.0
    taker = threading.Timer(0.1, lambda: [puller.pull(0.5) for _ in range(3)])
    taker.start()
    assert pusher.push(message, TIMEOUT_S)
    taker.join()


def test_a_refused_push_does_not_use_up_a_number(bench):
    """A gap in the sequence is a loss and nothing else."""
    pusher, puller = bench.pair(high_water_mark=1)
    message = weights(num_bytes=1_000_000)
    pushed = fill(pusher, message, quiet_s=0.2)
    assert not pusher.try_push(message)
    assert [puller.pull(TIMEOUT_S).sequence for _ in range(pushed)] == list(range(pushed))
    assert pusher.push(message, TIMEOUT_S)
    assert puller.pull(TIMEOUT_S).sequence == pushed


# --- strangers


def test_malformed_messages_are_counted_and_logged_once_and_the_next_one_comes(bench, caplog):
    """No crash, no flood: one line for each reason."""
    puller = bench.open(Puller, kinds=("critic",))
    stranger = zmq.Context.instance().socket(zmq.PUSH)
    stranger.linger = 0
    stranger.connect(puller.endpoint)
    for _ in range(5):
        stranger.send(b"\xc1")
    stranger.send_multipart([b"\x80", b"x", b"y"])
    pusher = bench.open(Pusher)
    assert pusher.try_push(Message("checkpoint", {"folder": "a"}))
    with caplog.at_level(logging.WARNING):
        deadline_s = time.monotonic() + TIMEOUT_S
        while refused_by(puller).total() < 7 and time.monotonic() < deadline_s:
            assert puller.pull(0.1) is None
    assert refused_by(puller) == {"bad_header": 5, "missing_key": 1, "wrong_kind": 1}
    assert len(caplog.records) == 3
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert pusher.push(weights(8), TIMEOUT_S)
    assert puller.pull(TIMEOUT_S).fields["version"] == 8
    stranger.close()


def test_a_kind_that_does_not_travel_here_is_refused_at_the_sender(bench):
    """A mistake shows where it was made."""
    pusher = bench.open(Pusher, kinds=("rollout",))
    with pytest.raises(WireError, match="wrong_kind"):
        pusher.try_push(weights())


# --- endpoints


def test_tcp_carries_the_same(bench):
    """Only the endpoint differs; port 0 is chosen by the system."""
    puller = bench.open(Puller, endpoint="tcp://127.0.0.1:*")
    pusher = bench.open(Pusher, endpoint=puller.endpoint)
    assert pusher.push(weights(num_bytes=LARGE, value=6.0), TIMEOUT_S)
    assert (puller.pull(TIMEOUT_S).arrays["parameters"] == 6.0).all()


def test_a_tcp_port_that_is_taken_is_named(bench):
    """Who reads the error knows which endpoint to change."""
    puller = bench.open(Puller, endpoint="tcp://127.0.0.1:*")
    with pytest.raises(EndpointTaken, match=puller.endpoint):
        Puller(puller.endpoint, bind=True)


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("tcp://0.0.0.0:5555", "loopback"),
        ("tcp://*:5555", "loopback"),
        ("tcp://192.168.1.5:5555", "loopback"),
        ("tcp://127.evil.example:5555", "loopback"),
        ("ipc://relative/path", "no endpoint"),
        ("ipc://@abstract", "no endpoint"),
        ("inproc://somewhere", "no endpoint"),
        ("udp://127.0.0.1:5555", "no endpoint"),
        ("nonsense", "no endpoint"),
        ("tcp://127.0.0.1:eighty", "cannot be"),
        ("ipc:///tmp/" + "x" * 107, "at most 107 bytes"),
    ],
)
def test_endpoints_that_cannot_be_used_are_refused_with_the_reason(endpoint, why):
    """Before anything is bound."""
    with pytest.raises(ChannelError, match=why):
        Pusher(endpoint)
