"""The counted course of a run: whatever the scheduling, it goes on, and keeps its lag and its order."""

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze_zmq.balance import DelayGate, RatioGate, Schedule, updates_per_round

ROLLOUT = 64
NUM_ROLLOUTS = 60
#: Rollouts that the queues between a sampler and a learner hold.
PLACES = 3


def plan_of(ratio, batch_size, num_samplers, lag, starts=100):
    """A schedule that publishes by the round."""
    every = updates_per_round(ratio, batch_size, num_samplers * ROLLOUT)
    return Schedule(ratio, batch_size, starts, every, lag, num_samplers, ROLLOUT)


class Run:
    """The decisions of every process of a run, and queues in the place of its channels. Whoever's turn it is
    does one thing, if there is one that it may do.
    """

    def __init__(self, schedule, policy_delay=1, slack=0):
        self.schedule, self.slack = schedule, slack
        first_update = schedule.counted_from
        self.gate = RatioGate(schedule.replay_ratio, schedule.batch_size, first_update, slack * ROLLOUT)
        self.follow = DelayGate(policy_delay, 0)
        self.produced = [0] * schedule.num_samplers
        self.under_way = [deque() for _ in self.produced]
        self.taken = [0] * schedule.num_samplers
        self.lags, self.trace = [], []
        self.rng = random.Random(0)

    def turn(self, who):
        """One step of one process; whether it could do anything."""
        return self.sampler(who) if isinstance(who, int) else getattr(self, who)()

    def play(self, turns):
        """A random beginning, and then everybody in turn until the end: it must come."""
        everybody = [*range(len(self.produced)), "critic", "actor"]
        for turn in turns:
            self.turn(everybody[turn % len(everybody)])
        idle = 0
        while self.gate.received < NUM_ROLLOUTS * ROLLOUT:
            moved = [self.turn(who) for who in everybody]
            idle = 0 if any(moved) else idle + 1
            assert idle < 2, f"nobody can go on: {vars(self)}"
        return self


class InOrder(Run):
    """Everything is taken in its turn."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.acting = [0] * len(self.produced)
        self.policies, self.critics = [0], [(0, 0)]
        self.followed = 0
        self.policy_taken = 0
        self.observations = [0] * len(self.produced)
        self.stored = 0

    def sampler(self, i):
        """Collect as far as the policy says and the queues have places, then take the next one."""
        if len(self.under_way[i]) >= PLACES or self.observations[i] >= PLACES:
            return False
        if self.produced[i] < self.schedule.collect_until(self.acting[i]):
            self.produced[i] += ROLLOUT
            self.under_way[i].append(self.acting[i])
            self.observations[i] += 1
            return True
        if self.acting[i] + 1 < len(self.policies):
            self.acting[i] += 1
            return True
        return False

    def critic(self):
        """Update where the ratio allows, else pull whose turn it is; publish by the count."""
        published = len(self.critics) - 1
        needed = max(0, published - 1)
        if self.policy_taken < needed and len(self.policies) > needed:
            self.policy_taken = needed
        if self.gate.may_update and self.policy_taken == needed:
            self.gate.trained += self.gate.batch_size
            self.trace.append((self.gate.received, self.policy_taken))
            if self.gate.trained // self.gate.batch_size % self.schedule.publish_every == 0:
                self.critics.append((self.gate.trained // self.gate.batch_size, self.gate.received))
            return True
        queue = self.under_way[self.gate.received // ROLLOUT % len(self.produced)]
        if not self.gate.may_update and self.gate.may_pull and queue:
            version = queue.popleft()
            self.lags.append(published - version)
            self.trace.append(("rollout", version))
            self.gate.received += ROLLOUT
            return True
        return False

    def actor(self):
        """Take in all observations; follow each of the critics in turn, and publish one policy for each."""
        fetched = sum(self.observations)
        self.stored += fetched * ROLLOUT
        self.observations = [0] * len(self.produced)
        if self.followed + 1 < len(self.critics) and self.stored >= self.critics[self.followed + 1][1]:
            self.followed += 1
            self.policies.append(self.critics[self.followed])
            return True
        return fetched > 0


class Bounded(Run):
    """Everybody takes the newest; what is too stale on arrival is dropped."""

    def __init__(self, *arguments, heeded=True, **options):
        super().__init__(*arguments, **options)
        self.heeded = heeded
        self.acting = [(0, {})] * len(self.produced)
        self.taken = {}
        self.policy, self.critics = (0, {}), (0, {})
        self.told, self.told_by_actor = {}, {}
        self.life = self.met = self.before = self.dropped = self.blocks = 0

    def sampler(self, i):
        """Take the newest policy, now and then a moment late; collect as far as it says."""
        if self.rng.random() < 0.8:
            self.acting[i] = self.policy
        version, taken = self.acting[i]
        until = taken[i] + self.schedule.share if i in taken and self.heeded else float("inf")
        if self.produced[i] < until and len(self.under_way[i]) < 8:
            self.produced[i] += ROLLOUT
            self.under_way[i].append(version)
            return True
        return self.acting[i] != self.policy

    def critic(self):
        """Update and pull as the gates allow; publish by the count and to whoever may be waiting."""
        updates = self.gate.trained // self.gate.batch_size
        can_pull = self.gate.may_pull and any(self.under_way)
        if can_pull and (not self.gate.may_update or self.rng.random() < 0.5):
            i = self.rng.choice([i for i, queue in enumerate(self.under_way) if queue])
            version = self.under_way[i].popleft()
            self.taken[i] = self.produced[i] - ROLLOUT * len(self.under_way[i])
            lag = self.policy[0] - version
            if lag > self.schedule.max_policy_lag:
                self.dropped += ROLLOUT
            else:
                self.lags.append(lag)
                self.gate.received += ROLLOUT
            return True
        taken = dict(self.taken)
        if self.gate.may_update:
            self.gate.trained += self.gate.batch_size
            if (updates + 1) % self.schedule.publish_every == 0:
                self.critics, self.told = (updates + 1, taken), taken
            return True
        if self.schedule.used_up(taken, self.told):
            self.critics, self.told = (updates, taken), taken
            return True
        return False

    def die(self):
        """The critic-learner is another one, without samples; what was under way to the old one is lost."""
        self.life += 1
        self.before += self.gate.received
        self.dropped += ROLLOUT * sum(map(len, self.under_way))
        for queue in self.under_way:
            queue.clear()
        self.gate.received = self.gate.trained = 0
        self.taken, self.told, self.critics = {}, {}, (0, {})

    def actor(self):
        """Follow the newest critics; the same policy again where a sampler may be waiting, or where what it
        waits for may be lost with a former life of the critic-learner.
        """
        if self.met != self.life:
            self.met, self.blocks, self.told_by_actor = self.life, 0, None
            self.follow.meet(self.critics[0])
        self.follow.hear(self.critics[0])
        if self.follow.may_update:
            self.follow.actor_updates += 1
            return True
        blocks = self.follow.followed // self.schedule.publish_every
        told = self.told_by_actor
        must_tell = told is None or self.schedule.used_up(self.critics[1], told)
        if blocks == self.blocks and not must_tell:
            return False
        self.policy = (self.policy[0] + (blocks > self.blocks), self.critics[1])
        self.blocks, self.told_by_actor = blocks, self.critics[1]
        return True


RATIOS = st.sampled_from([0.1, 0.5, 2, 7.3, 8, 32])
STARTS = st.sampled_from([1, 100, 2000])
TURNS = st.lists(st.integers(0, 10_000), max_size=300)
LIVES = st.lists(TURNS, min_size=1, max_size=3)


@given(RATIOS, st.sampled_from([1, 48, 64, 256]), st.integers(1, 4), st.integers(1, 3), STARTS, TURNS)
@settings(max_examples=30, deadline=None)
def test_in_order_the_lag_is_kept_and_nobody_waits_for_ever(
    ratio, batch_size, num_samplers, lag, starts, turns
):
    """Whatever the ratio, the batch and who is fast: no rollout is older than the bound, none is dropped."""
    schedule = plan_of(ratio, batch_size, num_samplers, lag, starts)
    assert schedule.keeps_lag
    assert max(InOrder(schedule).play(turns).lags) <= lag


@given(RATIOS, st.integers(1, 4), st.integers(1, 3), TURNS, TURNS)
@settings(max_examples=40, deadline=None)
def test_in_order_two_schedules_train_on_the_same(ratio, num_samplers, lag, turns, others):
    """Update for update the same samples, of the same versions, with the same policy."""
    schedule = plan_of(ratio, 256, num_samplers, lag)
    first, second = (InOrder(schedule).play(order).trace for order in (turns, others))
    shorter = min(len(first), len(second))
    assert shorter > NUM_ROLLOUTS
    assert first[:shorter] == second[:shorter]


@given(RATIOS, st.integers(1, 4), st.integers(0, 20), st.integers(0, 3), LIVES)
@settings(max_examples=60, deadline=None)
def test_bounded_the_lag_is_kept_and_nobody_waits_for_ever(ratio, num_samplers, lag, slack, lives):
    """Every sample is either within the bound or dropped, and samplers that wait are always told to go on,
    also by a critic-learner that knows nothing of what they wait for.
    """
    run = Bounded(plan_of(ratio, 256, num_samplers, lag), slack=slack).play(lives[0])
    for turns in lives[1:]:
        run.die()
        run.play(turns)
    assert max(run.lags) <= lag
    under_way = ROLLOUT * sum(map(len, run.under_way))
    assert sum(run.produced) == run.before + run.gate.received + run.dropped + under_way


def test_samplers_that_heed_the_limit_lose_little():
    """Four samplers far faster than the learners, with queues of eight rollouts and a lag of three versions:
    the limit saves most of what would be dropped without it.
    """
    rng, lost = random.Random(1), {}
    order = [rng.randrange(6) for _ in range(3000)]
    for heeded in (True, False):
        run = Bounded(plan_of(8, 256, 4, 3), slack=2, heeded=heeded).play(order)
        lost[heeded] = run.dropped / sum(run.produced)
    assert lost[True] < 0.4 * lost[False]


def test_what_the_next_version_needs_is_always_allowed():
    """Ratio 8, batch 256, two samplers: a round of 128 transitions allows four updates: a version. The first
    round is not counted.
    """
    schedule = plan_of(8, 256, 2, 1, starts=0)
    assert schedule.publish_every == 4
    assert [schedule.received_for(version) for version in range(4)] == [0, 256, 384, 512]
    assert [schedule.rounds_under(version) for version in range(3)] == [3, 4, 5]
    assert schedule.collect_until(0) == 3 * ROLLOUT


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_learning_starts_at_a_whole_round(lag):
    """300 transitions of two samplers are three rounds of 128, all of them under version 0, as the fourth one
    is, which allows the first updates.
    """
    schedule = plan_of(8, 256, 2, lag, starts=300)
    assert schedule.counted_from == 384
    assert [schedule.updates_allowed(received) for received in (383, 384, 512)] == [0, 0, 4]
    assert schedule.rounds_under(0) >= 4


def test_without_lag_a_version_must_take_whole_rounds():
    """Else a rollout would begin under one version and arrive under the next."""
    assert plan_of(8, 256, 2, 0).keeps_lag
    assert not plan_of(7.3, 256, 2, 0).keeps_lag
    assert not Schedule(8, 256, 0, 3, 1, 2, ROLLOUT).keeps_lag


def test_a_share_is_what_the_samplers_may_have_under_way_together():
    """Lag 3, a version of 128 transitions, two samplers: 192 transitions each; never less than one."""
    assert plan_of(8, 256, 2, 3).share == 192
    assert plan_of(8, 256, 2, 0).share == 1


@settings(max_examples=200, deadline=None)
@given(
    ratio=st.floats(0.3, 40),
    batch_size=st.integers(8, 400),
    num_samplers=st.integers(1, 4),
    lag=st.integers(1, 4),
    starts=st.integers(1, 1500),
    rounds=st.integers(1, 40),
)
def test_what_samplers_collect_under_after_a_round_is_among_the_last_policies(
    ratio, batch_size, num_samplers, lag, starts, rounds
):
    """A run that goes on exactly keeps one policy more than the lag allows, and the next round has the
    version that it has in a whole run.
    """
    schedule = plan_of(ratio, batch_size, num_samplers, lag, starts)
    newest = schedule.updates_allowed(rounds * schedule.round_transitions) // schedule.publish_every
    first = next(version for version in range(newest + 2) if schedule.rounds_under(version) > rounds)
    assert newest - lag <= first <= newest
