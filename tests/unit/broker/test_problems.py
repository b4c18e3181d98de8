"""The broker's record of refusals: what is displayed when, and which sender is stuck."""

import pytest

from spreeze_zmq.broker.problems import MOST_ROWS, NO_REPORT, RefusalRecord
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology


def row(count, good=0, kind="rollout", word="wrong_dtype", sender="sampler-0"):
    """A row as a learner reports it."""
    first = "rollout.reward is float64, expected float32"
    return {"sender": sender, "kind": kind, "word": word, "count": count, "first": first, "good": good}


def test_a_refusal_is_told_at_once_and_at_each_tenfold_count():
    """With sender, kind, count and rule."""
    record = RefusalRecord()
    told = [
        [one.count for one in record.take("c-0", [row(count)], count / 100)]
        for count in (1, 5, 9, 12, 99, 130)
    ]
    assert told == [[1], [], [], [12], [], [130]]
    assert record.rows(1.3)[0].line == (
        "sampler-0: c-0 refused 130 rollout messages: wrong_dtype: "
        "rollout.reward is float64, expected float32"
    )


def stuck(*reports, **about):
    """Whether the sender is stuck after reports of (time, count, good)."""
    record = RefusalRecord()
    for now_s, count, good in reports:
        record.take("c-0", [row(count, good, **about)], now_s)
    return record.rows(reports[-1][0])[0].stuck


def test_who_gets_nothing_through_for_long_is_stuck():
    """Three are refused over 1.5 seconds and none is accepted; a hello is sent once."""
    assert stuck((0.0, 1, 0), (1.0, 3, 0), (1.6, 5, 0))
    assert not stuck((0.0, 1, 0), (1.0, 3, 0))
    assert not stuck((0.0, 1, 0), (1.6, 2, 0))
    assert not stuck((0.0, 1, 0), (1.0, 3, 5), (1.6, 5, 9))
    assert not stuck((0.0, 1, 0), (1.0, 3, 5), (1.6, 5, 5), (2.2, 9, 5), (2.7, 12, 5))
    assert not stuck((0.0, 1, 0), (9.0, 1, 0))
    assert stuck((0.0, 1, 0), (2.0, 1, 0), kind="hello")
    assert not stuck((0.0, 1, 0), (1.0, 30, 0), (2.0, 500, 0), word="stale")
    assert not stuck((0.0, 1, 0), (1.0, 30, 0), (2.0, 500, 0), kind="episodes")
    assert not stuck((0.0, 1, 0), (1.0, 30, 0), (2.0, 500, 0), word="wrong_kind")


def test_the_next_life_of_a_sender_is_not_stuck_by_what_the_last_one_sent():
    """Its name may be that of a process on another machine by now."""
    record = RefusalRecord()
    for now_s, count in ((0.0, 1), (2.0, 5)):
        record.take("c-0", [row(count, 0)], now_s)
    assert record.rows(60.0)[0].stuck
    record.begin("sampler-0", 61.0)
    for now_s, count, expected in ((61.5, 6, False), (62.0, 9, False), (63.0, 12, True)):
        record.take("c-0", [row(count, 0)], now_s)
        assert (record.rows(now_s)[0].stuck, record.rows(now_s)[0].count) == (expected, count)


@pytest.mark.parametrize(
    ("taker", "sender", "kind", "ends_s"),
    [
        ("broker-0", "sampler-0", "rollout", None),  # where none travels
        ("critic_learner-0", "evaluator-0", "rollout", None),  # of one who sends none
        ("critic_learner-0", "sampler-0", "hello", None),
        ("critic_learner-0", "sampler-0", "rollout", 1.5),  # which says that it has pushed some
        ("critic_learner-0", "sampler-1", "rollout", None),  # which has not
        ("critic_learner-0", "sampler-2", "rollout", None),  # which is not there yet
        ("broker-0", "sampler-0", "hello", None),  # whose reports are taken
        ("broker-0", "sampler-0", "report", 1.5),
        ("broker-0", "sampler-2", "hello", 10.0),
        ("broker-0", "sampler-2", "report", 10.0),
        ("actor_learner-0", "critic_learner-0", "critic", 1.5),
        ("sampler-0", "critic_learner-0", "policy", None),  # which is the actor-learner's
    ],
)
def test_a_name_that_somebody_else_uses_is_not_stuck(taker, sender, kind, ends_s):
    """A sender is only where its own channel takes nothing of it, though it says that it sends."""
    run = RunRecord(topology.load("pendulum"))
    for name, pushed in (("sampler-0", 64), ("sampler-1", 0)):
        about = {"role": "sampler", "name": name, "pid": 1, "cpu_s": 0.0, "rss_bytes": 1, "gauges": {}}
        clock = {"clock_s": {"busy": 1.0}, "counters": {}, "pushed": {"critic_learner": pushed}}
        run.take_report(name, 1, {**about, **clock}, 0.0)
    found = None
    for tick in range(60):
        now_s = tick / 2
        run.refusals.take(taker, [row(tick + 1, kind=kind, sender=sender)], now_s)
        if found is None and run.refusals.rows(now_s)[0].stuck:
            found = now_s
    assert found == ends_s


def test_a_new_life_of_the_taker_counts_on():
    """A restarted taker reports counts from 0."""
    record = RefusalRecord()
    for count in (7, 9, 2):
        record.take("c-0", [row(count)], 1.0)
    assert record.rows(1.0)[0].count == 11
    assert record.mistakes == 11


def test_what_the_last_life_of_the_taker_says_late_counts():
    """Its successor has refused some already, and goes on."""
    record = RefusalRecord()
    for count, life in ((7, 1), (2, 2), (9, 1), (3, 2)):
        record.take("c-0", [row(count)], 1.0, life)
    assert record.rows(1.0)[0].count == 9 + 3


def test_the_channels_of_a_process_are_summed():
    """Two channels refuse for the same reason, report after report."""
    record = RefusalRecord()
    for first, second in ((2, 1), (5, 1), (5, 3)):
        record.take("c-0", [row(first), row(second)], 1.0)
    assert record.rows(1.0)[0].count == 8


def test_handshakes_that_failed_are_told_as_such():
    """There is no message and no known sender."""
    record = RefusalRecord()
    failed = {"sender": "", "kind": "", "word": "bad_keys", "count": 3, "good": 0, "first": "tcp://... why"}
    record.take("broker-0", [failed], 0.0)
    record.take("broker-0", [{**failed, "count": 12}], 9.0)
    assert record.rows(9.0)[0].line == "broker-0: 12 handshakes failed: bad_keys: tcp://... why"
    assert not record.rows(9.0)[0].stuck


def test_names_without_end_fill_no_memory():
    """The number of rows is bounded."""
    record = RefusalRecord()
    for number in range(1000):
        record.take("c-0", [row(1, sender=f"sampler-{number}")], 1.0)
        record.take("c-0", [{}, {"sender": [], "count": "many", "good": -1, "first": None}], 1.0)
    assert len(record.rows(1.0)) == MOST_ROWS


def test_a_thousand_silent_processes_leave_places_for_refusals():
    """As after a cut of a network."""
    record = RefusalRecord()
    for number in range(1000):
        record.miss(f"sampler-{number}", NO_REPORT, 1.0)
    assert len(record.take("c-0", [row(1)], 2.0)) == 1
    assert len(record.rows(2.0)) == MOST_ROWS + 1


def test_rollouts_that_come_too_late_hide_no_mistake():
    """Of a hundred samplers; the mistakes of one come before them, and have a place."""
    record = RefusalRecord()
    for number in range(100):
        record.take("c-0", [row(1000, good=9, word="stale", sender=f"sampler-{number}")], 1.0)
    assert len(record.take("c-0", [row(40, good=9, word="not_finite", sender="sampler-3")], 2.0)) == 1
    first, second = record.rows(2.0, 2)
    assert (first.word, second.word, record.mistakes) == ("not_finite", "stale", 40)
