"""When weights are published, and the record of the losses."""

import json
import math

import numpy as np
import pytest

from spreeze_zmq.learner import publication
from spreeze_zmq.learner.cadence import Cadence
from spreeze_zmq.learner.publication import Record
from spreeze_zmq.wire import Message


def test_a_counted_publication_is_due_once_for_each_crossing():
    """Every eight updates; who jumps over two crossings publishes once."""
    cadence = Cadence(interval_s=1e9, every=8)
    due = [updates for updates in (0, 7, 8, 8, 9, 15, 16, 40, 41, 47) if cadence.due(updates)]
    assert due == [8, 16, 40]
    cadence.restart()
    assert cadence.due(8)


def test_by_the_clock_a_publication_is_due_once_in_an_interval():
    """Whatever has been counted."""
    cadence = Cadence(interval_s=1e9, every=0)
    assert [cadence.due(updates) for updates in (1, 100, 1000)] == [True, False, False]


class Clock:
    """Time that passes when the test says so."""

    now_s = 100.0

    def __call__(self):
        """The time."""
        return self.now_s


def publications(publish_s, update_s=0.01, updates=2000, **options):
    """A learner that does nothing but update and publish: its cadence, and when each publication began."""
    clock = Clock()
    cadence, times = Cadence(0.05, 0, clock=clock, work_clock=clock, **options), []
    for count in range(1, updates + 1):
        began_s = clock.now_s
        clock.now_s += update_s
        cadence.updated(began_s)
        if cadence.due(count):
            times.append(clock.now_s)
            with cadence.publishing():
                clock.now_s += publish_s(len(times))
            cadence.sent(Message("critic", {}, {"parameters": np.zeros(100, np.float32)}))
    return cadence, np.diff(times)


def test_the_interval_grows_while_nothing_is_published():
    """The figure is of the last sixteen, and of a learner that waits it is no rate of long ago."""
    clock = Clock()
    cadence = Cadence(0.05, 0, clock=clock, work_clock=clock)
    assert cadence.figures()["interval_s"] == 0.0
    for _ in range(20):
        clock.now_s += 0.5
        cadence.sent(Message("critic", {}, {}))
    assert cadence.figures()["interval_s"] == pytest.approx(0.5)
    clock.now_s += 60.0
    assert cadence.figures()["interval_s"] == pytest.approx(60.0)
    cadence.sent(Message("critic", {}, {}))
    mean_s = cadence.figures()["interval_s"]
    assert mean_s < 10.0
    cadence.rest()
    clock.now_s += 60.0
    assert cadence.figures()["interval_s"] == mean_s, "a run that has ended takes its time to drain"


def test_cheap_publications_keep_the_least_interval():
    """0.5 ms of 50 ms is 1 %: below the 2 % that are allowed."""
    cadence, gaps = publications(lambda _: 0.0005)
    assert gaps.max() < 0.07
    assert cadence.figures()["cost"] == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(("cost", "interval_s"), [(0.02, 0.2), (0.1, 0.05)])
def test_dear_publications_are_stretched_to_their_share(cost, interval_s):
    """4 ms are 2 % of 200 ms of updates; with a share of 10 % the least interval holds."""
    cadence, gaps = publications(lambda _: 0.004, cost=cost)
    assert gaps.mean() == pytest.approx(interval_s, rel=0.2)
    figures = cadence.figures()
    assert figures["cost"] <= 1.02 * cost
    assert figures["interval_s"] == pytest.approx(interval_s, rel=0.2)
    assert figures["bytes"] == 400


@pytest.mark.parametrize(
    ("sending_s", "receiving", "interval_s"), [(0.01, 0.02, 0.05), (0.5, 0.02, 2.2), (0.0, 0.5, 10.0)]
)
def test_a_publication_waits_until_the_last_one_has_been_sent(sending_s, receiving, interval_s):
    """By another thread, which may take a quarter of the time for it: half a second for a thousand
    subscribers. What it takes to receive delays no publication for more than ten seconds.
    """
    clock, times = Clock(), []

    def sending_clock():
        return sending_s * len(times) + receiving * clock.now_s

    cadence = Cadence(0.05, 0, clock=clock, work_clock=clock, sending_clock=sending_clock)
    for count in range(1, 5000):
        began_s = clock.now_s
        clock.now_s += 0.01
        cadence.updated(began_s)
        if cadence.due(count):
            times.append(clock.now_s)
    assert np.diff(times).mean() == pytest.approx(interval_s, rel=0.1)


def test_one_dear_publication_is_paid_off_and_then_forgotten():
    """100 ms once cost 5 s without another; afterwards the interval is as before."""
    _, gaps = publications(lambda number: 0.1 if number == 1 else 0.0005)
    assert gaps[0] == pytest.approx(5.1, rel=0.05)
    assert gaps[1:].max() < 0.07


def test_what_has_been_saved_is_spent_on_dear_publications_within_limits():
    """After any time of cheap ones, 2 % of ten seconds and no more: the next is due once the rest is paid."""
    _, gaps = publications(lambda number: 0.3 if number == 200 else 0.0, updates=4000)
    assert gaps[:199].max() < 0.07
    assert gaps[199] == pytest.approx(0.3 + (0.3 - 0.2) / 0.02, rel=0.05)


def test_a_publication_before_the_first_update_is_free():
    """Version 0 warms everything up and nobody waits for the next because of it."""
    clock = Clock()
    cadence = Cadence(0.05, 0, clock=clock, work_clock=clock)
    with cadence.publishing():
        clock.now_s += 1.0
    assert cadence.due(0)
    assert cadence.figures() == {"interval_s": 0.0, "cost": 0.0, "bytes": 0}


def test_counted_publications_do_not_ask_what_they_cost():
    """Every eight updates, though each takes as long as ten."""
    clock = Clock()
    cadence = Cadence(0.05, every=8, clock=clock, work_clock=clock)
    due = []
    for count in range(1, 25):
        began_s = clock.now_s
        clock.now_s += 0.01
        cadence.updated(began_s)
        if cadence.due(count):
            due.append(count)
            with cadence.publishing():
                clock.now_s += 0.1
    assert due == [8, 16, 24]
    assert cadence.figures()["cost"] == pytest.approx(0.3 / 0.24)


def test_losses_are_recorded_where_publications_are_counted(tmp_path):
    """One line for each, of counts and losses alone; nothing where the clock decides."""
    counted, timed = (
        Record(tmp_path / str(every) / "x.jsonl", Cadence(1.0, every=every)) for every in (8, 0)
    )
    for record in (counted, timed):
        record.write({"critic_updates": 8}, {"critic_loss": 0.5, "q": math.nan})
    [line] = (tmp_path / "8" / "x.jsonl").read_text().splitlines()
    assert json.loads(line) == {"critic_updates": 8, "critic_loss": 0.5, "q": None}
    assert not (tmp_path / "0").exists()


def test_the_record_of_a_long_run_has_ever_fewer_publications(tmp_path, monkeypatch):
    """The same ones whether or not it went on from another, so that it has the bytes of one run."""
    monkeypatch.setattr(publication, "WHOLE_RECORD", 4)
    cadence = Cadence(1.0, every=10)
    record = Record(tmp_path / "x.jsonl", cadence)
    for updates in range(10, 410, 10):
        assert cadence.due(updates)
        record.write({"critic_updates": updates}, {})
    written = [json.loads(line)["critic_updates"] // 10 for line in record.path.read_text().splitlines()]
    assert written == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert record.lines == len(written)


def test_a_record_that_goes_on_begins_with_that_of_the_run_before(tmp_path):
    """Up to the checkpoint; without a file there it begins empty."""
    before, after, alone = (
        Record(tmp_path / name / "x.jsonl", Cadence(1.0, every=8)) for name in ("before", "after", "alone")
    )
    for updates in (8, 16, 24):
        before.write({"critic_updates": updates}, {})
    after.go_on(before.path, 2)
    alone.go_on(tmp_path / "nowhere.jsonl", 2)
    for record in (after, alone):
        record.write({"critic_updates": 30}, {})
    assert [json.loads(line)["critic_updates"] for line in after.path.read_text().splitlines()] == [8, 16, 30]
    assert (after.lines, alone.lines) == (3, 1)
