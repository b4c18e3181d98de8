"""PUB and SUB: the newest message wins, for late joiners and for readers that were away too."""

import threading
import time

import numpy as np
import pytest
import zmq

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.usage import Threads
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import SENDING_THREADS, Publisher, Subscriber, poll, pub_sub
from tests.unit.wire.channels.conftest import TIMEOUT_S, weights

#: A closed end has as long to send what it holds.
LINGER_S = 5.0


def versions(subscriber):
    """The versions of everything that waits."""
    received = []
    while (message := subscriber.receive()) is not None:
        received.append(message.fields["version"])
    return received


def test_a_late_joiner_has_the_latest_at_once(bench):
    """Without anything new being published."""
    publisher = bench.open(Publisher)
    for version in range(3):
        publisher.publish(weights(version))
    late = bench.open(Subscriber)
    bench.joined(publisher)
    bench.arrived(late)
    message = late.newest()
    assert message.fields["version"] == 2
    assert message.repeat


def test_who_has_it_already_passes_over_the_repetition(bench):
    """A late joiner costs the others nothing but a look."""
    publisher, early = bench.audience()
    publisher.publish(weights(1))
    bench.arrived(early)
    assert early.newest().fields["version"] == 1
    late = bench.open(Subscriber)
    bench.joined(publisher)
    bench.arrived(late)
    bench.arrived(early)
    assert early.newest() is None
    assert early.repeated == 1
    assert late.newest().fields["version"] == 1


def test_the_newest_wins(bench):
    """Older ones that wait are passed over."""
    publisher, subscriber = bench.audience()
    for version in range(5):
        publisher.publish(weights(version))
    version = -1
    while version < 4:
        bench.arrived(subscriber)
        before, version = version, subscriber.newest().fields["version"]
        assert version > before
    assert subscriber.newest() is None
    assert subscriber.missed == 0


def test_only_what_a_reader_has_looked_at_counts_as_taken(bench):
    """Of weights that never fit none gets through, however many a newer one replaces or come repeated."""
    publisher, subscriber = bench.audience()
    for version in range(3):
        publisher.publish(weights(version))
    version = -1
    while version < 2:
        bench.arrived(subscriber)
        message = subscriber.newest()
        version = message.fields["version"]
        subscriber.refuse(WireError("bad_parameters", "of another layout"), message.sender, message.kind)
    subscriber.ask_again()
    bench.joined(publisher)
    bench.arrived(subscriber)
    assert subscriber.newest() is None
    assert subscriber.repeated == 1
    [row] = subscriber.refusals.rows()
    assert (row["count"] >= 1, row["good"]) == (True, 0)


def test_receive_gives_each_message_in_order(bench):
    """For control, where each one matters."""
    publisher, subscriber = bench.audience()
    for version in range(5):
        publisher.publish(weights(version))
    assert [message.fields["version"] for message in bench.taken(subscriber, 5)] == [0, 1, 2, 3, 4]
    assert subscriber.receive() is None


@pytest.mark.parametrize("num_bytes", [1_000, 300_000])
def test_a_reader_that_was_away_gets_the_last_message_although_it_was_dropped(bench, num_bytes):
    """PUB drops the newest at a full queue; the reader notices and asks again, even if nothing new comes."""
    last = 1000 if num_bytes < 10_000 else 60
    published, done = threading.Event(), threading.Event()

    def publish():
        publisher = Publisher(endpoint, bind=True, sender="peer-0", incarnation=1, high_water_mark=4)
        poll([publisher], timeout_s=TIMEOUT_S)
        for version in range(last + 1):
            publisher.publish(weights(version, num_bytes))
        published.set()
        while not done.is_set():
            poll([publisher], timeout_s=0.02)
        publisher.close()

    endpoint = bench.folder.endpoint("away")
    thread = threading.Thread(target=publish)
    thread.start()
    subscriber = bench.open(Subscriber, endpoint=endpoint, high_water_mark=4)
    assert published.wait(TIMEOUT_S)
    newest = news(subscriber)
    while newest.fields["version"] < last:
        newest = news(subscriber)
    done.set()
    thread.join()
    assert 0 < subscriber.missed < last


def lost(publisher, message):
    """Publish what no subscriber has a place for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "_send", lambda frames: True)
        publisher.publish(message)


def news(subscriber, publisher=None):
    """The newest message as soon as there is one, for a reader that looks now and then."""
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        if (message := subscriber.newest()) is not None:
            return message
        poll([subscriber, *([publisher] if publisher else [])], timeout_s=0.02)
    raise AssertionError(f"nothing new in {TIMEOUT_S} s")


def test_a_last_message_that_was_lost_without_a_trace_comes_after_a_silence(bench):
    """No queue was seen full and no gap: the reader asks when it has been quiet."""
    publisher, subscriber = bench.audience()
    publisher.publish(weights(1))
    assert news(subscriber).fields["version"] == 1
    lost(publisher, weights(2))
    assert news(subscriber, publisher).fields["version"] == 2
    assert subscriber.missed == 0


def test_one_silence_is_one_question(bench, monkeypatch):
    """However long nothing is published, and however often the reader looks."""
    monkeypatch.setattr(pub_sub, "QUIET_S", 0.1)
    monkeypatch.setattr(pub_sub, "MAX_QUIET_S", 0.1)
    publisher, subscriber = bench.audience()
    publisher.publish(weights(1))
    assert news(subscriber).fields["version"] == 1
    while not poll([publisher], timeout_s=0.02):
        assert subscriber.newest() is None
    bench.arrived(subscriber)
    poll([publisher], timeout_s=0.1)  # the name of who has asked
    for _ in range(3):
        time.sleep(0.2)
        assert subscriber.newest() is None
    assert subscriber.repeated == 1
    assert poll([publisher], timeout_s=0.05) == set()


def test_a_setting_that_was_lost_comes_again_though_others_came_after_it(bench):
    """``receive`` finds the gap and asks; what is of no later number is news where its option is."""
    publisher, subscriber = bench.audience()
    publisher.publish(Message("status", {"t_s": 1.0}))
    lost(publisher, Message("set", {"role": "sampler", "option": "envs", "value": 8}))
    publisher.publish(Message("status", {"t_s": 2.0}))
    bench.arrived(subscriber)
    received = [subscriber.receive().kind]
    while (message := subscriber.receive()) is not None or len(received) < 3:
        received += [message.kind] if message else []
        poll([publisher, subscriber], timeout_s=0.02)
    assert received == ["status", "status", "set"]
    assert (subscriber.missed, subscriber.repeated) == (0, 1)


def test_what_is_published_before_a_late_joiner_is_answered_hides_nothing_from_it(bench):
    """The newer status comes first; the older setting is news all the same."""
    publisher = bench.open(Publisher)
    publisher.publish(Message("set", {"role": "sampler", "option": "envs", "value": 8}))
    late = bench.open(Subscriber)
    assert zmq.zmq_poll([(publisher.socket, zmq.POLLIN)], 1000 * int(TIMEOUT_S))
    publisher.publish(Message("status", {"t_s": 1.0}))
    bench.arrived(late)
    assert late.receive().kind == "status"
    bench.joined(publisher)
    bench.arrived(late)
    message = late.receive()
    assert (message.kind, message.repeat) == ("set", True)
    assert late.missed == 0


@pytest.mark.parametrize("reads", [True, False])
def test_who_leaves_waits_for_a_reader_that_has_lost_the_last_message(bench, reads):
    """A reader that was busy all the time asks for it, and has it when the publisher is gone, though others
    have asked before; one that reads nothing is not waited for any longer than told, and one that has lost
    nothing, or is of another role, not at all.
    """
    publisher, other = bench.audience(high_water_mark=4, linger_s=LINGER_S)
    subscriber = bench.open(Subscriber, sender="evaluator-0", high_water_mark=4, linger_s=LINGER_S)
    while b"evaluator-0" not in publisher._askers:
        bench.joined(publisher)
    publisher.publish(weights(0))
    assert publisher.await_askers("evaluator", 0.0)
    for version in range(1, 100):
        publisher.publish(weights(version, 100_000))
    other.ask_again()
    bench.joined(publisher)
    publisher.publish(weights(100, 100_000))
    assert not publisher.await_askers("evaluator", 0.0)
    assert publisher.await_askers("viewer", 0.0)
    reader = threading.Timer(0.2, subscriber.newest, (TIMEOUT_S,))
    if reads:
        reader.start()
    assert publisher.await_askers("evaluator", TIMEOUT_S if reads else 0.3) is reads
    publisher.close()
    if reads:
        reader.join()
        while subscriber._last_sequence < 100:
            bench.arrived(subscriber)
            subscriber.newest()


def test_what_is_queued_for_a_busy_reader_outlives_who_leaves(bench):
    """Policies that found room, though the reader reads only when the publisher has been gone for longer than
    its linger time: the last one was lost.
    """
    publisher = bench.open(Publisher, high_water_mark=8, linger_s=0.1)
    subscriber = bench.open(Subscriber, high_water_mark=2)
    while subscriber.sender.encode() not in publisher._askers:
        bench.joined(publisher)
    for version in range(7):
        publisher.publish(weights(version, 300_000))
    assert publisher.await_askers("evaluator", TIMEOUT_S)
    publisher.close()
    time.sleep(0.3)
    while subscriber._last_sequence < 6:
        bench.arrived(subscriber)
        subscriber.newest(0.0)


def test_gaps_in_the_sequence_are_counted(bench):
    """What was published and never came."""
    publisher, subscriber = bench.audience()
    publisher.publish(weights(0))
    bench.arrived(subscriber)
    assert versions(subscriber) == [0]
    publisher.published += 3
    publisher.publish(weights(4))
    bench.arrived(subscriber)
    assert versions(subscriber) == [4]
    assert subscriber.missed == 3


def test_joining_late_is_no_miss(bench):
    """What was published before is the past; only retained kinds come again, in their order."""
    publisher = bench.open(Publisher)
    publisher.publish(Message("stop", {"roles": ["*"], "reason": "a"}))
    for _ in range(3):
        publisher.publish(Message("checkpoint", {"folder": "1"}))
    publisher.publish(Message("status", {"t_s": 1.0}))
    publisher.publish(Message("checkpoint", {"folder": "2"}))
    late = bench.open(Subscriber)
    bench.joined(publisher)
    publisher.publish(Message("status", {"t_s": 2.0}))
    received = [(message.kind, message.repeat) for message in bench.taken(late, 3)]
    assert received == [("stop", True), ("status", True), ("status", False)]
    assert late.missed == 0


def test_of_set_the_latest_of_every_option_comes_again(bench):
    """Another option of the same role does not take its place; another value of the same option does."""
    publisher = bench.open(Publisher)
    told = [("sampler", "envs", 8), ("actor_learner", "batch_size", 64), ("sampler", "envs", 16)]
    for role, option, value in told:
        publisher.publish(Message("set", {"role": role, "option": option, "value": value}))
    late = bench.open(Subscriber)
    bench.joined(publisher)
    names = ("role", "option", "value")
    received = [tuple(message.fields[name] for name in names) for message in bench.taken(late, 2)]
    assert received == told[1:]
    assert late.receive() is None


def test_a_restarted_publisher_is_news(bench):
    """Its sequence starts again; another incarnation says why."""
    publisher, subscriber = bench.audience()
    for version in range(3):
        publisher.publish(weights(version))
    assert [message.fields["version"] for message in bench.taken(subscriber, 3)] == [0, 1, 2]
    publisher.incarnation, publisher.published = 2, 0
    publisher.publish(weights(0))
    bench.arrived(subscriber)
    assert versions(subscriber) == [0]
    assert subscriber.missed == 0


def test_what_late_joiners_get_does_not_change_with_the_senders_memory(bench):
    """The publisher keeps its own copy of small arrays; large ones are frozen."""
    publisher = bench.open(Publisher)
    small, large = weights(1, 1024, value=1.0), weights(2, 300_000, value=2.0)
    publisher.publish(small)
    small.arrays["parameters"][:] = 9.0
    late = bench.open(Subscriber)
    bench.joined(publisher)
    bench.arrived(late)
    np.testing.assert_array_equal(late.newest().arrays["parameters"], np.full(256, 1.0, np.float32))
    publisher.publish(large)
    with pytest.raises(ValueError, match="read-only"):
        large.arrays["parameters"][:] = 9.0


def test_publishing_never_waits(bench):
    """With a subscriber that takes nothing, and with none at all."""
    publisher = bench.open(Publisher, high_water_mark=2)
    began_s = time.monotonic()
    for version in range(100):
        publisher.publish(weights(version, 300_000))
    bench.open(Subscriber, high_water_mark=2)
    bench.joined(publisher)
    for version in range(100):
        publisher.publish(weights(version, 300_000))
    assert time.monotonic() - began_s < 20.0


def test_no_frames_of_a_subscriber_stop_a_publisher(bench):
    """Of several frames that it sends, the last one may be a cancellation that ZeroMQ keeps to itself."""
    publisher, subscriber = bench.audience()
    with zmq.Context() as context, context.socket(zmq.XSUB) as peer:
        peer.linger = 0
        peer.connect(publisher.endpoint)
        before = publisher.subscriptions
        for frames in ([b"\2", b"\0"], [b"", b"\0", b"\0"], [b"\1", b"\0"]):
            peer.send_multipart(frames)
        until_s = time.monotonic() + TIMEOUT_S
        while publisher.subscriptions == before and time.monotonic() < until_s:
            publisher.serve()
    assert publisher.subscriptions == before + 1
    publisher.publish(weights(1))
    bench.arrived(subscriber)
    assert versions(subscriber) == [1]


def test_what_is_sent_to_many_takes_the_cpu_time_of_zeromqs_thread(bench):
    """Which the publishing thread's clock does not show; that thread is found by its name."""
    publisher = bench.open(Publisher)
    subscribers = [bench.open(Subscriber) for _ in range(8)]
    while publisher.subscriptions < len(subscribers):
        bench.joined(publisher)
    threads, message = Threads(SENDING_THREADS), weights(num_bytes=1 << 22)
    before_s = threads.cpu_s()
    publisher.publish(message)
    for subscriber in subscribers:
        bench.arrived(subscriber)
    assert threads.cpu_s() - before_s > 8 * 1e-4  # 4 MB each
