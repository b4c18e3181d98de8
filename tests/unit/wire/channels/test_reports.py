"""Reports to one who is behind: the newest of each sender, in turn; the rest waits where it was made."""

import contextlib
import time

import pytest
import zmq

from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Inbox, Outbox, poll, reports
from spreeze_zmq.wire.channels.reports import FRAME_BYTES
from tests.unit.wire.channels.conftest import TIMEOUT_S, refused_by

GONE = Message("exited", {"name": "sampler-0", "how": "exit code 0", "restarting": False})


def report(role, number):
    """A report that counts to ``number``."""
    about = {"role": role, "name": f"{role}-0", "pid": 1, "time_s": 0.0, "uptime_s": 1.0, "cpu_s": 0.5}
    about |= {"rss_bytes": 1000, "clock_s": {}, "gauges": {}}
    return Message("report", {**about, "counters": {"count": number}})


def gathered(inbox, count):
    """Gather until so many messages have come."""
    while inbox.num_waiting + inbox.merged < count:
        assert poll([inbox], timeout_s=TIMEOUT_S)
        inbox.gather()


def read(inbox):
    """Sender, kind and count of each message, in their order."""
    messages = iter(inbox.next, None)
    return [(one.sender, one.kind, one.fields.get("counters", {}).get("count")) for one in messages]


@pytest.fixture
def inbox(bench):
    """Who reads."""
    return bench.open(Inbox)


def test_of_each_senders_reports_the_newest_is_read_and_everything_else_whole(bench, inbox):
    """A sender keeps its turn, however often it reports; a learner's reports each list something else."""
    inbox.keeps_all = lambda sender: sender == "critic_learner-0"
    names = ("sampler-0", "sampler-1", "critic_learner-0")
    ends = [bench.open(Outbox, sender=name, incarnation=1) for name in names]
    for count, (number, name, one) in enumerate(
        ((number, name, one) for number in range(3) for name, one in zip(names, ends, strict=True)), 1
    ):
        assert one.push(report(name.rpartition("-")[0], number), TIMEOUT_S)
        gathered(inbox, count)
    assert ends[0].push(GONE, TIMEOUT_S)
    assert ends[0].push(GONE, TIMEOUT_S)
    gathered(inbox, 11)
    learner = [("critic_learner-0", "report", number) for number in range(3)]
    samplers = [("sampler-0", "report", 2), ("sampler-1", "report", 2)]
    assert read(inbox) == [*samplers, *learner, ("sampler-0", "exited", None), ("sampler-0", "exited", None)]
    assert inbox.merged == 4


def test_a_report_is_not_read_before_what_its_sender_sent_earlier(bench, inbox):
    """Else figures of one that has said what it is seem to be of one that has not."""
    one = bench.open(Outbox, sender="sampler-0", incarnation=1)
    sent = [report("sampler", 1), report("sampler", 2), GONE, report("sampler", 3), report("sampler", 4)]
    for count, message in enumerate(sent, 1):
        assert one.push(message, TIMEOUT_S)
        gathered(inbox, count)
    assert inbox.next().fields["counters"] == {"count": 2}
    assert one.push(report("sampler", 5), TIMEOUT_S)
    gathered(inbox, 5)
    assert [row[1:] for row in read(inbox)] == [("exited", None), ("report", 5)]
    assert one.push(report("sampler", 6), TIMEOUT_S)
    gathered(inbox, 4)
    assert [row[1:] for row in read(inbox)] == [("report", 6)]


def test_another_life_of_a_sender_is_another_sender(bench, inbox):
    """What the last life has counted is not lost with the next one's first report."""
    for incarnation in (1, 2):
        one = bench.open(Outbox, sender="sampler-0", incarnation=incarnation)
        assert one.push(report("sampler", incarnation), TIMEOUT_S)
        gathered(inbox, incarnation)
    assert [count for _, _, count in read(inbox)] == [1, 2]


@pytest.mark.parametrize(("bound", "most"), [("MOST_WAITING", 5), ("MOST_BYTES", 5 + 5 * FRAME_BYTES)])
def test_a_flood_waits_at_its_senders(bench, inbox, monkeypatch, bound, most):
    """Here waits as much as the bound says; unreadable messages count as much as others."""
    monkeypatch.setattr(reports, bound, most)
    socket = bench.open(Outbox, high_water_mark=2).socket
    until_s = time.monotonic() + TIMEOUT_S
    while inbox.num_waiting < 5 or socket.poll(300, zmq.POLLOUT):
        assert time.monotonic() < until_s
        with contextlib.suppress(zmq.Again):
            socket.send(b"x", zmq.DONTWAIT)
        inbox.gather()
    assert inbox.num_waiting == 5
    assert inbox.next() is None
    assert inbox.num_waiting == 0
    assert sum(refused_by(inbox).values()) == 5


def test_only_reports_are_left_out_where_there_is_no_room(bench):
    """Everything else is kept in its order, and goes before what comes later."""
    outbox = bench.open(Outbox, high_water_mark=1, sender="launcher", incarnation=1)
    assert outbox.post(report("sampler", 0))
    assert not outbox.post(report("sampler", 1))
    assert outbox.post(GONE)
    assert not outbox.post(report("sampler", 2))
    inbox = bench.open(Inbox)
    gathered(inbox, 1)
    outbox.patient_until_s = time.monotonic() + TIMEOUT_S
    assert outbox.serve()
    assert outbox.post(report("sampler", 3))
    outbox.patient_until_s = 0.0
    gathered(inbox, 2)
    inbox.gather()
    kinds = [(kind, count) for _, kind, count in read(inbox)]
    assert ("exited", None) in kinds
    assert ("report", 1) not in kinds
    assert ("report", 2) not in kinds
