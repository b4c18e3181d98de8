"""The gates that keep production and consumption in their ratio, and the histogram of staleness."""

import random

import pytest

from spreeze_zmq.balance import DelayGate, LagHistogram, RatioGate


def test_nothing_is_trained_before_learning_starts():
    """The first update waits for ``learning_starts`` transitions, and for the 8 more that a batch of 256
    takes at a ratio of 32; meanwhile nobody stops the samplers.
    """
    gate = RatioGate(replay_ratio=32, batch_size=256, learning_starts=1000, slack=0)
    for gate.received in (0, 999, 1000, 1007):
        assert not gate.may_update
        assert gate.may_pull
    gate.received = 1008
    assert gate.may_update


@pytest.mark.parametrize(
    ("ratio", "batch_size", "starts"),
    [(8, 512, 1000), (100, 100, 5000), (256, 256, 10_000), (5120, 256, 5000)],
)
def test_the_first_samples_are_not_made_up_for(ratio, batch_size, starts):
    """Whatever the ratio: once a rollout of 256 follows ``learning_starts``, updates are those of that
    rollout, not of all before it (the primacy bias, 2205.07802).
    """
    gate = RatioGate(ratio, batch_size, starts, slack=0, received=starts + 256)
    updates = 0
    while not gate.may_pull:
        gate.trained += batch_size
        updates += 1
    assert updates == 256 * ratio // batch_size
    assert gate.measured == pytest.approx(ratio)


def test_learning_starts_of_zero_still_waits_for_a_sample():
    """An empty replay cannot be sampled."""
    assert not RatioGate(8, 256, 0, 64).may_update


def test_consumption_never_exceeds_the_ratio():
    """With ratio 2, 300 received transitions allow two batches of 256 and no third."""
    gate = RatioGate(2, 256, 0, 0, received=300)
    updates = 0
    while gate.may_update:
        gate.trained += gate.batch_size
        updates += 1
    assert (updates, gate.trained) == (2, 512)


def test_production_stops_when_it_is_ahead_by_more_than_the_slack():
    """At ratio 8 a slack of 100 transitions is 800 trained ones."""
    gate = RatioGate(8, 256, 0, 100, received=1000, trained=8 * 1000 - 800)
    assert gate.may_pull
    gate.received += 1
    assert not gate.may_pull


@pytest.mark.parametrize("ratio", [2.0, 32.0])
def test_another_ratio_holds_from_now_on_and_makes_up_for_nothing(ratio):
    """By hand: ahead by 300 before, and by 300 after; then what comes counts by the new ratio. What is
    measured is what comes, too, and not how many the gate takes for trained on.
    """
    gate = RatioGate(8, 256, 0, 100, received=1000, trained=7700)
    assert gate.measured == 7.7
    gate.retarget(ratio)
    assert ratio * gate.received - gate.trained == 300
    assert gate.measured is None
    gate.received += 100
    assert ratio * gate.received - gate.trained == 300 + 100 * ratio
    gate.trained += 50
    assert gate.measured == 0.5


def test_before_the_first_update_another_ratio_is_as_if_it_had_been_stated():
    """Nothing has been trained on that it could count."""
    gate = RatioGate(8, 256, 1000, 100, received=1020)
    gate.retarget(2)
    assert (gate.trained, gate.measured) == (0, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_two_gates_are_never_both_shut(seed):
    """No schedule of rollouts and updates can deadlock, even with slack zero and batches larger than the
    ratio allows.
    """
    rng = random.Random(seed)
    gate = RatioGate(
        rng.choice([0.1, 0.5, 2, 8, 32]),
        rng.choice([1, 256, 8192]),
        rng.choice([0, 1000]),
        rng.choice([0, 64]),
    )
    for _ in range(2000):
        choices = [name for name in ("may_pull", "may_update") if getattr(gate, name)]
        assert choices
        if rng.choice(choices) == "may_pull":
            gate.received += rng.choice([1, 16, 256])
        else:
            gate.trained += gate.batch_size


@pytest.mark.parametrize("ratio", [0.5, 2, 8, 32])
def test_the_measured_ratio_comes_to_its_target(ratio):
    """A learner that updates and pulls whenever it may ends within two percent of the stated ratio."""
    gate = RatioGate(ratio, 256, 1000, 512)
    for _ in range(20_000):
        if gate.may_update:
            gate.trained += 256
        elif gate.may_pull:
            gate.received += 256
    assert gate.measured == pytest.approx(ratio, rel=0.02)


def test_the_actor_follows_the_critic_at_its_delay():
    """With policy_delay 2 and no slack, ten critic updates allow five actor updates."""
    gate = DelayGate(policy_delay=2, slack=0)
    assert not gate.may_update
    gate.critic_updates = 10
    while gate.may_update:
        gate.actor_updates += 1
    assert gate.actor_updates == 5


def test_the_actor_may_be_ahead_by_its_slack_and_no_further():
    """The slack is counted in critic updates."""
    gate = DelayGate(policy_delay=1, slack=3, critic_updates=10)
    while gate.may_update:
        gate.actor_updates += 1
    assert gate.actor_updates == 13


def test_an_actor_that_could_not_follow_makes_up_for_nothing():
    """It follows the same critic from where that is by then, at its delay."""
    gate = DelayGate(policy_delay=2, slack=0)
    gate.meet(100)
    gate.hear(5100)
    assert gate.may_update
    gate.meet_again()
    assert not gate.may_update
    gate.hear(5104)
    while gate.may_update:
        gate.actor_updates += 1
    assert gate.actor_updates == 2


def quantiles(p50, p99, most, recent_p50, recent_p99):
    """As a learner reports them."""
    recent = {"recent_p50": recent_p50, "recent_p99": recent_p99}
    return {"p50": p50, "p99": p99, "max": most, **recent}


def test_lag_quantiles_are_those_of_the_transitions():
    """98 transitions of lag 1, one of 7, one of 30."""
    lag = LagHistogram()
    assert lag.summary() == quantiles(0, 0, 0, 0, 0)
    for value, transitions in ((1, 98), (7, 1), (30, 1)):
        lag.add(value, transitions)
    assert lag.summary() == quantiles(1, 7, 30, 1, 7)


def test_the_present_lag_forgets_what_was():
    """A curve of all so far would not show that samples have become stale after an hour."""
    lag = LagHistogram()
    for value, rollouts in ((1, 100_000), (9, 200)):
        for _ in range(rollouts):
            lag.add(value, 128)
    assert lag.summary() == quantiles(1, 1, 9, 9, 9)


def test_a_policy_that_came_back_from_a_checkpoint_counts_as_fresh():
    """Its version is lower than that of rollouts under way; no negative lag is reported."""
    lag = LagHistogram()
    lag.add(-5, 10)
    assert lag.summary() == quantiles(0, 0, 0, 0, 0)


def test_a_half_that_came_back_follows_from_where_the_two_meet():
    """It neither makes up for the updates of a former life nor waits for as many of a younger one."""
    gate = DelayGate(policy_delay=2, slack=0)
    for stands_at in (50_000, 300):
        gate.meet(stands_at)
        assert not gate.may_update
        gate.hear(stands_at + 4)
        done = 0
        while gate.may_update:
            gate.actor_updates += 1
            done += 1
        assert done == 2


def test_what_the_actor_has_followed_counts_its_delay():
    """Three critic updates at a delay of two are followed with one update of the policy."""
    gate = DelayGate(policy_delay=2, slack=0, critic_updates=3)
    assert gate.followed == 0
    gate.actor_updates += 1
    assert gate.followed == 3
