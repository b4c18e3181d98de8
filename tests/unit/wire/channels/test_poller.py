"""One wait on many channels."""

import os
import time

from spreeze_zmq.wire.channels import Publisher, Puller, Subscriber, poll
from tests.unit.wire.channels.conftest import TIMEOUT_S, weights


def test_only_what_is_ready_is_returned(bench):
    """Reading, writing, or neither until the timeout."""
    pusher, puller = bench.pair()
    other = bench.open(Puller, "other")
    began_s = time.monotonic()
    assert poll([puller, other], timeout_s=0.1) == set()
    assert time.monotonic() - began_s > 0.09
    assert poll([puller, other], [pusher], timeout_s=TIMEOUT_S) == {pusher}
    assert pusher.try_push(weights())
    assert poll([puller, other], timeout_s=TIMEOUT_S) == {puller}


def test_readiness_lasts_until_everything_is_taken(bench):
    """A message that was left behind makes its channel ready again."""
    pusher, puller = bench.pair()
    for _ in range(2):
        assert pusher.push(weights(), TIMEOUT_S)
    for _ in range(2):
        assert poll([puller], timeout_s=TIMEOUT_S) == {puller}
        assert puller.pull() is not None
    assert poll([puller]) == set()


def test_a_publisher_that_is_waited_on_serves_late_joiners(bench):
    """Nothing else has to be called."""
    publisher = bench.open(Publisher)
    publisher.publish(weights(4))
    subscriber = bench.open(Subscriber)
    deadline_s = time.monotonic() + TIMEOUT_S
    message = None
    while message is None and time.monotonic() < deadline_s:
        poll([publisher, subscriber], timeout_s=0.1)
        message = subscriber.newest()
    assert message.fields["version"] == 4


def test_a_file_descriptor_wakes_the_wait(bench):
    """A signal's wake-up pipe, for one."""
    puller = bench.open(Puller)
    reading, writing = os.pipe()
    os.write(writing, b"x")
    assert poll([puller, reading], timeout_s=TIMEOUT_S) == {reading}
    os.close(reading)
    os.close(writing)
