"""The account of a run of many weeks, in which samplers crash and are started again thousands of times."""

import json

from spreeze_zmq.broker.account import OTHERS, SampleAccount
from spreeze_zmq.broker.receipts import MOST_STREAMS, Receipts
from spreeze_zmq.plan.form import from_plain, to_plain
from tests.unit.broker.test_account import rollout, samples

LIVES = 5000


def lived(lives=LIVES):
    """Both ends after as many lives of one sampler, each of two rollouts, and half of one on its way."""
    receipts, account = Receipts(), SampleAccount()
    for life in range(lives):
        for produced in (10, 20):
            came = rollout(produced, incarnation=life)
            assert receipts.disorder(came) == ""
            receipts.take(came)
        account.report_pushed(f"sampler-0/{life}", 25)
        if life % 100 == 99:
            account.report_taken("c/1", receipts.to_dict())
    return receipts, account


def test_a_sampler_is_heard_after_thousands_of_lives_and_every_transition_counts():
    """The streams of its first lives leave their places to those of the last; their sums stay."""
    receipts, account = lived()
    assert account.totals(alive=()) == samples(25 * LIVES, 20 * LIVES, 5 * LIVES, 0)
    assert account.totals().in_flight == 5 * MOST_STREAMS
    ends = account.undelivered((), lambda stream: "crashed")
    assert ends[OTHERS] == 5 * (LIVES - MOST_STREAMS)
    assert sum(ends.values()) == 5 * LIVES
    assert max(len(receipts.streams), len(account.pushed), len(account.takers["c/1"])) == MOST_STREAMS
    again = from_plain(SampleAccount, json.loads(json.dumps(to_plain(account))), "broker.json")
    assert again.totals(alive=()) == account.totals(alive=())


def test_the_sums_cost_no_more_after_thousands_of_lives(monkeypatch):
    """Only streams that have changed are looked at; the sums are those of an account that looks at all."""
    looks, fate_of = [], SampleAccount._fate
    monkeypatch.setattr(SampleAccount, "_fate", lambda *of: looks.append(of) or fate_of(*of))
    receipts, account = lived(MOST_STREAMS + 50)
    account.totals()
    looks.clear()
    for life in range(100):
        came = rollout(10, incarnation=LIVES + life)
        receipts.take(came)
        account.report_pushed(came.stream, 15)
        account.report_taken("c/1", {came.stream: receipts.to_dict()[came.stream]})
        account.totals()
        account.undelivered(None, str)
    assert len(looks) <= 200
    again = from_plain(SampleAccount, to_plain(account), "broker.json")
    for alive in (None, (), (came.stream,)):
        assert account.totals(alive) == again.totals(alive)
        assert account.undelivered(alive, str) == again.undelivered(alive, str)


class Unwalked(dict):
    """A table that nobody walks over."""

    def __iter__(self):
        raise AssertionError("walked over")


def test_a_made_up_name_among_thousands_is_refused_without_a_look_at_all():
    """It is by far the most that somebody can send."""
    receipts, account = Receipts(), SampleAccount()
    for number in range(MOST_STREAMS):
        receipts.take(rollout(10, sampler=f"sampler-{number}"))
        account.report_pushed(f"sampler-{number}/1", 10)
    receipts.streams, account.pushed = Unwalked(receipts.streams), Unwalked(account.pushed)
    assert "it begins a stream" in receipts.disorder(rollout(10, sampler="made-up"))
    account.report_pushed("made-up/1", 10)
    assert len(account.pushed) == MOST_STREAMS


def test_what_is_listed_of_a_stream_that_has_left_counts_once():
    """A learner lists by turns what it keeps; a rollout of a life long gone takes nothing from the others."""
    receipts, account = lived()
    before = account.totals(alive=())
    account.report_pushed("sampler-0/0", 25)
    old = {"first": 0, "last": 20, "received": 20, "refused": 0, "lost": 0}
    account.report_taken("c/1", {"sampler-0/0": old})
    receipts.take(rollout(30, incarnation=0))
    receipts.drop(rollout(10, incarnation=7))
    account.report_taken("c/1", receipts.to_dict())
    again = f"sampler-0/{LIVES - 1}"
    account.report_taken("c/1", {again: {"first": 20, "last": 30, "received": 10, "refused": 0, "lost": 0}})
    assert account.totals(alive=()) == before


def test_made_up_names_take_no_place_of_a_sampler_that_lives():
    """The bound stays one; who has a place keeps it."""
    receipts, account = Receipts(), SampleAccount()
    for number in range(2 * MOST_STREAMS):
        came = rollout(10, sampler=f"sampler-{number}")
        assert (receipts.disorder(came) == "") == (number < MOST_STREAMS)
        if number < MOST_STREAMS:
            receipts.take(came)
        account.report_pushed(f"sampler-{number}/1", 10)
        if number % 100 == 99:
            account.report_taken("c/1", receipts.to_dict())
    assert len(receipts.streams) == len(account.pushed) == MOST_STREAMS
    assert receipts.disorder(rollout(20)) == ""


def test_a_sampler_that_lives_never_leaves_though_a_former_life_is_listed_late():
    """A last rollout of its former life may arrive behind one of the present; what changed last is newest."""
    account = SampleAccount()

    def taken(received):
        return {"first": 0, "last": received, "received": received, "refused": 0, "lost": 0}

    account.report_pushed("sampler-0/2", 5)
    account.report_taken("c/1", {"sampler-0/2": taken(5)})
    account.report_pushed("sampler-0/1", 5)
    account.report_taken("c/1", {"sampler-0/1": taken(5)})
    account.report_pushed("sampler-0/2", 10)
    account.report_taken("c/1", {"sampler-0/2": taken(10)})
    for life in range(MOST_STREAMS + 10):
        account.report_pushed(f"sampler-1/{life}", 1)
        account.report_taken("c/1", {f"sampler-1/{life}": taken(1)})
    account.report_pushed("sampler-0/2", 15)
    account.report_taken("c/1", {"sampler-0/2": taken(15)})
    assert account.pushed["sampler-0/2"] == 15
    totals = account.totals()
    assert totals.produced == totals.received == 20 + MOST_STREAMS + 10
