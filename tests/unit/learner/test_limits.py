"""The limits of collection: in a mode that bounds the lag every stream has one, however many there are."""

from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

import pytest

from spreeze_zmq.learner.lag import LONGEST_STREAM, MOST_LIMITED, CollectionLimits, Versions, fitting
from spreeze_zmq.plan import topology
from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.header import MAX_HEADER_BYTES, MAX_SENDER_BYTES

INCARNATION = 2**53 - 1


def streams(count, life=INCARNATION):
    """So many streams and positions that are far along, the newest last."""
    return {f"sampler-{index}/{life}": 2**33 + index for index in range(count)}


def header_bytes(counts):
    """The size of a message of critics that holds these counts."""
    parameters = topology.load("pendulum").environment.action_low.copy()
    fields = {"version": 1, "critic_updates": 1, "env_steps": 1, "taken": counts}
    return len(encode(Message("critic", fields, {"parameters": parameters}))[0])


@pytest.fixture(scope="module")
def bounded():
    """The limits of a run that bounds the lag by count."""
    return CollectionLimits(topology.load("pendulum", ["balance.mode=bounded"]))


@pytest.mark.parametrize("count", [1, 8, 1000, MOST_LIMITED])
def test_each_stream_has_its_own_limit(bounded, count):
    """A share beyond what was taken of it; and they fit in a header."""
    taken = streams(count)
    limits = bounded.collect_until(fitting(taken), Versions())
    assert {stream: limits[stream] for stream in taken} == {
        stream: position + bounded.schedule.share for stream, position in taken.items()
    }
    assert ("*" in limits) == (count == MOST_LIMITED)
    assert header_bytes(limits) < MAX_HEADER_BYTES - 4096  # a policy's description has a place


def test_streams_that_do_not_fit_have_the_greatest_limit(bounded):
    """The newest lives of the newest streams have their own; a life that is over needs none."""
    taken = {**streams(1000, life=1), **streams(2000)}
    limits = bounded.collect_until(taken, Versions())
    newest = list(taken)[-MOST_LIMITED:]
    assert list(limits) == [*newest, "*"]
    assert limits["*"] == taken[newest[-1]] + bounded.schedule.share
    assert header_bytes(limits) < MAX_HEADER_BYTES - 4096
    assert not bounded.used_up(taken)
    restarted = {**streams(1000, life=1), **streams(1000)}
    assert list(fitting(restarted)) == list(streams(1000))


@pytest.mark.parametrize(("letter", "size"), [("0", MAX_SENDER_BYTES), ("\U0001f600", 15)])
def test_streams_of_no_sampler_take_no_place_in_a_header(bounded, letter, size):
    """Anybody may send rollouts in any name; long ones would fill it, in letters or in bytes alone."""
    forged = {f"{index:{letter}>{size}}/{INCARNATION}": 2**33 for index in range(MOST_LIMITED)}
    limits = bounded.collect_until(forged | streams(3), Versions())
    assert list(limits) == list(streams(3))
    assert len(max(limits, key=len)) <= LONGEST_STREAM - 2
    assert header_bytes(fitting(forged | streams(MOST_LIMITED))) < MAX_HEADER_BYTES - 4096


def test_a_sampler_that_was_started_thousands_of_times_is_limited_as_ever(bounded):
    """Its lives that are over take no place, so its next one, of which nothing has come yet, is not let run
    ahead of what its last one had reached.
    """
    plan = topology.load("cartpole", ["components.sampler.count=4"])
    limits, rollout = CollectionLimits(plan), plan.balance.rollout_transitions
    taken = {f"sampler-0/{life}": 10 * rollout for life in range(2 * MOST_LIMITED)}
    assert limits.collect_until(taken, Versions()) == {"sampler-0/2799": 12 * rollout, "*": 2 * rollout}
    assert list(bounded.collect_until(taken, Versions())) == ["sampler-0/2799"]


def test_a_round_is_full_however_few_samplers_live():
    """Each may begin as many more rollouts, but none that no round within max_policy_lag has room for: three
    would have one in four dropped. With more samplers than a round has rollouts, none fewer.
    """
    plan = topology.load("cartpole", ["components.sampler.count=4"])
    limits, rollout = CollectionLimits(plan), plan.balance.rollout_transitions

    def shares():
        found = limits.collect_until({"sampler-0/1": 10 * rollout}, Versions())
        return [(found["sampler-0/1"] - 10 * rollout) // rollout, found["*"] // rollout]

    assert (limits.meet(0), shares()) == (False, [2, 2])
    for samplers, grows, each in ((1, True, 8), (3, False, 2), (2, True, 4), (4, False, 2), (9, False, 2)):
        assert (limits.meet(samplers), shares()) == (grows, [each, each])
    limits = CollectionLimits(replace(plan, balance=replace(plan.balance, max_policy_lag=0)))
    assert (limits.meet(3), shares()) == (True, [2, 2]), "one more, or none is full"


def documented(plan):
    """Limits by PROTOCOL.md's "Limits of collection", in fractions: under a version in order, the share of a
    stream off-policy otherwise, and that by rounds with so many samplers alive.
    """
    balance, learning, count = plan.balance, plan.learning, plan.components["sampler"].count
    lag, rollout = balance.max_policy_lag, balance.rollout_transitions
    each = Fraction(learning.batch_size * balance.publish_every_updates) / Fraction(balance.replay_ratio)
    whole = count.minimum * rollout

    def needed(version):
        starts = whole * max(1, ceil(Fraction(learning.learning_starts, whole)))
        return starts + ceil(version * each) if version else 0

    def in_order(version):
        return rollout * max(ceil(Fraction(needed(version + 1), whole)), needed(version + 1 + lag) // whole)

    def by_rounds(living):
        return rollout * max(ceil(Fraction(count.initial, living)), (1 + lag) * count.initial // living)

    return in_order, max(1, floor(lag * each / count.minimum)), by_rounds


@pytest.mark.parametrize("lag", [1, 2, 8])
@pytest.mark.parametrize("samplers", [1, 3, 8])
def test_limits_are_those_that_the_document_gives(samplers, lag):
    """Whoever publishes policies in another language has nothing else to go by."""
    sets = [f"components.sampler.count={samplers}", f"balance.max_policy_lag={lag}"]
    plan = topology.load("pendulum", ["balance.mode=lockstep", *sets])
    (in_order, _, _), limits = documented(plan), CollectionLimits(plan)
    assert [limits.in_turn(version) for version in range(40)] == [in_order(version) for version in range(40)]
    plan = topology.load("halfcheetah", ["balance.mode=bounded", *sets])
    assert CollectionLimits(plan).schedule.share == documented(plan)[1]
    plan = topology.load("cartpole", sets)
    (_, _, by_rounds), limits = documented(plan), CollectionLimits(plan)
    for living in range(1, samplers + 1):
        limits.meet(living)
        assert limits.collect_until({}, Versions()) == {"*": by_rounds(living)}
