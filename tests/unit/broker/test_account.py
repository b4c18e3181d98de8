"""The account of samples: produced = received + dropped + in flight, each term found on its own."""

import json
import random
import time
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.broker.account import MISSING, MOST_CAUSES, MOST_TAKERS, SampleAccount, Samples
from spreeze_zmq.broker.receipts import MOST_STREAMS, MOST_UNTAKEN, REPORTED_STREAMS, Receipts
from spreeze_zmq.component.component import Component
from spreeze_zmq.plan.form import from_plain, to_plain


def rollout(produced, sampler="sampler-0", incarnation=1, transitions=10, sequence=None):
    """A rollout of ``transitions`` steps of one environment that ends at position ``produced``."""
    sequence = produced // transitions - 1 if sequence is None else sequence
    return Rollout(sampler, incarnation, sequence, produced, 1, transitions, 1)


def samples(produced, received, dropped, in_flight):
    """The totals of an account."""
    return Samples(produced=produced, received=received, dropped=dropped, in_flight=in_flight)


def adds_up(totals):
    """Whether nothing is missing and nothing is counted twice."""
    return totals.produced == totals.received + totals.dropped + totals.in_flight


def test_a_gap_in_the_stream_is_a_loss():
    """Positions 10 to 30 never came."""
    receipts = Receipts()
    receipts.take(rollout(10))
    receipts.take(rollout(40))
    assert receipts.to_dict() == {
        "sampler-0/1": {"first": 0, "last": 40, "received": 20, "refused": 0, "lost": 20}
    }


def test_a_refused_rollout_is_dropped_and_no_gap():
    """A rollout that is too stale counts once, as dropped."""
    receipts = Receipts()
    receipts.take(rollout(10), refused=True)
    account = SampleAccount()
    account.report_pushed("sampler-0/1", 10)
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    assert account.totals() == samples(produced=10, received=0, dropped=10, in_flight=0)


def test_what_is_pushed_and_not_taken_is_in_flight():
    """While the run goes on or the sampler lives; afterwards it counts as dropped."""
    receipts, account = Receipts(), SampleAccount()
    receipts.take(rollout(10))
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    account.report_pushed("sampler-0/1", 50)
    assert account.totals() == samples(50, 10, 0, 40)
    assert account.totals(alive=["sampler-0/1"]) == samples(50, 10, 0, 40)
    assert account.totals(alive=["sampler-0/2"]) == samples(50, 10, 40, 0)


def test_a_sampler_killed_before_its_report_is_counted_from_its_rollouts():
    """The position in its rollouts says how much it had produced."""
    receipts, account = Receipts(), SampleAccount()
    receipts.take(rollout(10))
    receipts.take(rollout(20))
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    assert account.totals() == samples(20, 20, 0, 0)


def test_what_a_killed_learner_held_is_dropped():
    """The learner's next incarnation first sees a later position of the stream."""
    account, first, second = SampleAccount(), Receipts(), Receipts()
    first.take(rollout(10))
    account.report_taken("critic_learner-0/7", first.to_dict())
    second.take(rollout(40))
    account.report_taken("critic_learner-0/8", second.to_dict())
    account.report_pushed("sampler-0/1", 50)
    assert account.totals() == samples(produced=50, received=20, dropped=20, in_flight=10)


@pytest.mark.parametrize(
    ("false", "words"),
    [
        ({"received": 20}, "counts 20 transitions between 0 and 10"),
        ({"first": 20, "received": 0}, "counts 0 transitions between 20 and 10"),
        ({"received": -10, "lost": 20}, "below 0"),
        ({"first": 5, "received": 5}, "went from 0 to 8"),
        ({"last": 4, "received": 4}, "went from 0 to 8"),
    ],
)
def test_a_receipt_that_cannot_be_true_is_refused(false, words):
    """Such as one that counts a rollout twice, or goes back; what was known stays."""
    account, sound = SampleAccount(), {"first": 0, "last": 8, "received": 8, "refused": 0, "lost": 0}
    account.report_pushed("sampler-0/1", 10)
    account.report_taken("c/1", {"sampler-0/1": sound})
    with pytest.raises(WireError, match=words) as caught:
        account.report_taken(
            "c/1", {"s/2": sound, "sampler-0/1": {**sound, "last": 10, "received": 10, **false}}
        )
    assert caught.value.reason == "false_account"
    assert account.totals() == samples(produced=10, received=8, dropped=0, in_flight=2)


def test_what_two_lives_claim_counts_once():
    """Whatever is said in a learner's name, the sums add up and none is below 0."""
    rng = random.Random(7)
    for _ in range(200):
        account = SampleAccount()
        for taker in range(rng.randrange(1, 5)):
            first = rng.randrange(50)
            parts = [rng.randrange(20) for _ in range(3)]
            receipt = dict(zip(("received", "refused", "lost"), parts, strict=True))
            account.report_taken(
                f"c/{taker}", {"s/1": {"first": first, "last": first + sum(parts), **receipt}}
            )
        account.report_pushed("s/1", rng.randrange(100))
        alive = rng.choice((None, (), ("s/1",)))
        totals = account.totals(alive)
        assert min(totals.produced, totals.received, totals.dropped, totals.in_flight) >= 0
        assert adds_up(totals)
        causes = account.undelivered(alive, lambda stream: "was killed by SIGKILL")
        assert (
            0
            <= totals.dropped - sum(causes.values())
            <= sum(receipt.refused for streams in account.takers.values() for receipt in streams.values())
        )
        assert all(count > 0 for count in causes.values())
    account = SampleAccount()
    account.report_pushed("s/1", 15)
    for taker, last in (("c/1", 10), ("c/2", 15)):
        receipt = {"first": 0, "last": last, "received": last - 2, "refused": 0, "lost": 2}
        account.report_taken(taker, {"s/1": receipt})
    assert account.totals() == samples(produced=15, received=13, dropped=2, in_flight=0)


def test_each_transition_that_is_not_received_has_a_cause():
    """Lost in between, or sent by who was gone before it came; very many ends are told as one."""
    receipts, account = Receipts(), SampleAccount()
    receipts.take(rollout(10), refused=True)
    receipts.take(rollout(40))
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    account.report_pushed("sampler-0/1", 70)
    account.report_pushed("sampler-1/2", 5)
    ends = {"sampler-0/1": "is gone with desk1", "sampler-1/2": "was killed by SIGKILL"}
    causes = account.undelivered(["sampler-1/2"], ends.__getitem__)
    assert account.totals(alive=["sampler-1/2"]).dropped == 10 + 20 + 30
    gone = "sent and never received; its sampler: is gone with desk1"
    assert causes == {MISSING: 20, gone: 30}
    assert account.undelivered(None, ends.__getitem__) == {MISSING: 20}
    for number in range(100):
        account.report_pushed(f"sampler-{number}/9", 1)
        account.report_pushed(f"idle-{number}/9", 0)
    many = account.undelivered((), lambda stream: f"ended so: {stream}")
    assert not any("idle" in cause for cause in many)
    assert len(many) == MOST_CAUSES + 1
    assert sum(many.values()) + 10 == account.totals(alive=()).dropped


def test_it_adds_up_over_random_losses_and_restarts():
    """With rollouts lost, refused, held by killed learners or in flight, and restarts of both ends."""
    rng = random.Random(3)
    for _ in range(50):
        account, receipts, learner = SampleAccount(), Receipts(), 0
        for incarnation in range(3):
            position = 0
            for _ in range(rng.randrange(1, 30)):
                position += 10
                account.report_pushed(f"sampler-0/{incarnation}", position)
                fate = rng.random()
                if fate < 0.7:
                    receipts.take(rollout(position, incarnation=incarnation), refused=fate < 0.1)
                account.report_taken(f"critic_learner-0/{learner}", receipts.to_dict())
                if fate > 0.95:
                    learner, receipts = learner + 1, Receipts()
        assert adds_up(account.totals())
        assert account.totals(alive=()).in_flight == 0


def test_a_restarted_broker_knows_the_account():
    """It survives a JSON file."""
    account = SampleAccount()
    account.report_taken(
        "c/1", {"sampler-0/1": {"first": 0, "last": 10, "received": 10, "refused": 0, "lost": 0}}
    )
    account.report_pushed("sampler-0/1", 30)
    again = from_plain(SampleAccount, json.loads(json.dumps(to_plain(account))), "broker.json")
    assert again.totals(alive=()) == account.totals(alive=()) == samples(30, 10, 20, 0)


def test_a_stream_goes_on_where_it_has_come_to():
    """A rollout follows the last one: exactly where no message is missing, else further on; a stream starts
    at 0.
    """
    receipts = Receipts()
    assert "expected 10: 10 after 0" in receipts.disorder(rollout(20, sequence=0))
    assert receipts.disorder(rollout(10)) == ""
    receipts.take(rollout(10))
    assert receipts.disorder(rollout(20)) == ""
    assert "expected more than 0" in receipts.disorder(rollout(10))
    assert "expected 20: 10 after 10" in receipts.disorder(rollout(30, sequence=1))
    assert "expected 20: 10 after 10" in receipts.disorder(rollout(10, sequence=1))
    assert receipts.disorder(rollout(40)) == ""  # two messages are missing
    assert "at least the 10" in receipts.disorder(rollout(5, sequence=2))
    assert receipts.disorder(rollout(500, incarnation=2)) == ""  # this learner has just begun
    assert "too far for the 2 missing" in receipts.disorder(rollout(5000, incarnation=2, sequence=2))


def test_what_cannot_be_read_is_refused_and_not_in_flight():
    """It counts as the next one of its stream; unless its size is sure, one gap may follow."""
    receipts, account = Receipts(), SampleAccount()
    receipts.take(rollout(10))
    receipts.refuse("sampler-0/1", 1, 10, sure=True)
    receipts.refuse("sampler-0/1", 1, 10, sure=True)  # the same again
    assert receipts.disorder(rollout(30)) == ""
    assert receipts.disorder(rollout(40, sequence=2)) != ""
    receipts.refuse("sampler-0/1", 2, 10, sure=False)
    assert receipts.disorder(rollout(50, sequence=3)) == ""
    receipts.take(rollout(50, sequence=3))
    receipts.refuse("sampler-0/1", 4, 2**60, sure=True)  # nobody has sent so many
    account.report_pushed("sampler-0/1", 50)
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    assert account.totals() == samples(produced=50, received=20, dropped=30, in_flight=0)


def test_reports_list_every_stream_that_has_changed_and_in_time_those_of_a_lost_report():
    """So many of five times as many at a time; nothing is listed twice before all were listed once."""
    receipts, account, number = Receipts(), SampleAccount(), 5 * REPORTED_STREAMS
    for index in range(number):
        receipts.take(rollout(10, f"sampler-{index}"))
        account.report_pushed(f"sampler-{index}/1", 10)
    lost = receipts.to_dict()
    listed = []
    while receipts.unlisted:
        listed.append(receipts.to_dict())
        account.report_taken("critic_learner-0/7", listed[-1])
    assert [len(report) for report in (lost, *listed)] == [REPORTED_STREAMS] * 5
    assert len({name for report in (lost, *listed) for name in report}) == number
    assert account.totals() == samples(10 * number, 8 * number, 0, 2 * number)
    receipts.take(rollout(20, "sampler-9"))
    account.report_pushed("sampler-9/1", 20)
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    assert account.totals() == samples(10 * number + 10, 10 * number + 10, 0, 0)


def test_what_a_dropped_report_listed_is_listed_again():
    """Before those that come by turns, so that the last report of a learner leaves out none."""
    receipts, account = Receipts(), SampleAccount()
    for index in range(1000):
        receipts.take(rollout(10, f"sampler-{index}"))
    while receipts.unlisted:
        receipts.to_dict()  # no place for any of them
    receipts.relist()
    while receipts.unlisted:
        account.report_taken("critic_learner-0/7", receipts.to_dict())
    assert account.totals() == samples(10_000, 10_000, 0, 0)


def test_few_streams_are_all_in_each_report_by_their_last_arrival():
    """Whether they have changed or not, so that a lost report loses nothing."""
    receipts = Receipts()
    for index in (1, 2, 3):
        receipts.take(rollout(10, f"sampler-{index}"))
    receipts.take(rollout(20, "sampler-1"))
    for _ in range(2):
        assert list(receipts.to_dict()) == ["sampler-2/1", "sampler-3/1", "sampler-1/1"]


def test_a_report_is_followed_by_others_until_every_stream_is_listed():
    """With the figures of the first, so that no share is taken over the time between them."""
    receipts = Receipts()
    for index in range(450):
        receipts.take(rollout(10, f"sampler-{index}"))
    component = SimpleNamespace(
        own_report=lambda: {"cpu_s": time.perf_counter(), "taken": receipts.to_dict()},
        has_more=lambda: bool(receipts.unlisted),
        figures={"taken": receipts.to_dict},
    )
    reports = Component._reports(component)
    assert len(reports) == 3
    assert len({report["cpu_s"] for report in reports}) == 1
    assert {name for report in reports for name in report["taken"]} == set(receipts.streams)


def test_what_a_learner_received_over_very_many_lives_is_not_forgotten():
    """Of each life two rollouts were received, one refused and one lost, as one was before the next life."""
    account, receipts, lives = SampleAccount(), Receipts(), MOST_TAKERS + 50
    for life in range(lives):
        receipts = Receipts()
        for number, refused in ((1, False), (2, True), (4, False)):
            receipts.take(rollout(50 * life + 10 * number), refused=refused)
        account.report_taken(f"critic_learner-0/{life}", receipts.to_dict())
    account.report_pushed("sampler-0/1", 50 * lives)
    assert len(account.takers) == MOST_TAKERS
    assert account.totals() == samples(50 * lives, 20 * lives, 30 * lives - 10, 10)
    account.report_taken(f"critic_learner-0/{life}", receipts.to_dict())  # it lives
    again = from_plain(SampleAccount, json.loads(json.dumps(to_plain(account))), "account")
    assert again.totals() == account.totals()


@pytest.mark.parametrize("refused", [False, True])
def test_what_a_strangers_rollout_claims_came_before_it_is_not_produced(refused):
    """Nor what is refused of a stream whose sampler the broker does not know; what was received is."""
    receipts, account, most = Receipts(), SampleAccount(), 2**53 - 1
    forged = rollout(most, "sampler-9", sequence=most // 10)
    assert receipts.disorder(forged) == ""  # so many messages may be missing
    receipts.take(forged, refused=refused)
    for sequence in range(5):
        receipts.refuse("sampler-8/1", sequence, 1 << 24, sure=False)
    receipts.take(rollout(10))
    account.report_pushed("sampler-0/1", 30)
    account.report_taken("critic_learner-0/7", receipts.to_dict())
    received = 10 + 10 * (not refused)
    assert account.totals() == samples(received + 20, received, 0, 20)
    assert account.totals(alive=()) == samples(received + 20, received, 20, 0)
    assert sum(account.undelivered((), str).values()) == 20


def test_who_sends_only_what_is_refused_takes_no_place_of_a_samplers():
    """Of the streams that a learner keeps; a stream that was refused at first may go on."""
    receipts = Receipts()
    receipts.refuse("sampler-0/1", 0, 10, sure=True)
    for number in range(2 * MOST_STREAMS):
        receipts.refuse(f"sampler-9/{number}", 0, 10, sure=False)
        receipts.take(rollout(10, "sampler-8", incarnation=number), refused=True)
    assert len(receipts.streams) == MOST_UNTAKEN
    for number in range(MOST_STREAMS - MOST_UNTAKEN):
        assert receipts.disorder(rollout(10, "sampler-1", number)) == ""
        receipts.take(rollout(10, "sampler-1", number))
    receipts.take(rollout(20, sequence=1))
    assert receipts.to_dict()["sampler-0/1"] == {
        "first": 0,
        "last": 20,
        "received": 10,
        "refused": 10,
        "lost": 0,
    }


def test_more_than_can_have_been_received_is_refused():
    """No learner takes so many in the time that the run has lasted."""
    account, receipt = SampleAccount(), {"first": 0, "last": 11, "received": 11, "refused": 0, "lost": 0}
    with pytest.raises(WireError, match=r"false_account.*11 received transitions, at most 10"):
        account.report_taken("c/1", {"s/1": receipt}, 10)
    account.report_taken("c/1", {"s/1": receipt}, 11)
