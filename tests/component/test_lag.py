"""How the two learners, as real processes, keep the bound of the policy lag, over their lives too."""

import numpy as np
import pytest

from spreeze_zmq.peers.players import STREAM, OtherLearner, Sampler
from spreeze_zmq.wire import encode
from tests.component.test_learners import OVERRIDES, feed_until, played

P50, P99 = ("p50", "recent_p50"), ("p99", "recent_p99")
BOUNDED = [*OVERRIDES, "balance.max_policy_lag=2"]


@pytest.mark.parametrize("peers", [BOUNDED], indirect=True)
def test_what_is_too_stale_on_arrival_is_dropped_and_counted(peers):
    """Under version 5 and a bound of 2, version 3 is received and version 2 refused; and a life that begins
    without a checkpoint hears from the policy how many transitions the run has received.
    """
    feed, _ = played(peers, "critic_learner", env_steps=5000, version=5)
    peers.start()
    peers.report(lambda fields: fields["counters"]["env_steps"] >= 5000)
    for feed.version in (2, 3, 5, 0):
        before = feed.num_pushed
        while feed.num_pushed == before:
            feed.push(1)
    report = peers.report(lambda fields: fields["taken"].get(STREAM, {}).get("last") == 512)
    assert report["taken"] == {STREAM: {"first": 0, "last": 512, "received": 256, "refused": 256, "lost": 0}}
    assert report["policy_lag"] == {**dict.fromkeys(P50, 0), **dict.fromkeys(P99, 2), "max": 2, "stale": 256}
    assert report["counters"]["env_steps"] == 5000 + 256
    assert "refused a rollout of sampler-0 (1 so far): stale" in peers.logs()


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_older_samples_are_received_where_nothing_bounds_them(peers):
    """Under version 50 the random actions of version 0."""
    feed, _ = played(peers, "critic_learner", version=50)
    feed.version = 0
    feed_until(peers, feed, 1)
    peers.start()
    report = peers.report(lambda fields: fields["taken"])
    assert report["taken"] == {STREAM: {"first": 0, "last": 128, "received": 128, "refused": 0, "lost": 0}}
    assert report["policy_lag"] == {**dict.fromkeys((*P50, *P99, "max"), 50), "stale": 0}


@pytest.mark.parametrize("peers", [BOUNDED], indirect=True)
def test_nothing_is_received_before_a_policy_tells_how_old_it_is(peers):
    """Rollouts of version 2 and 5 wait for a critic-learner that begins; it hears that 5 is the newest."""
    peers.play("critic_learner")
    feed, other = Sampler(peers, 8, 16), OtherLearner(peers)
    for feed.version in (2, 5):
        feed.push(1)
    peers.start()
    for _ in range(3):
        assert peers.report()["taken"] == {}
    other.publish(version=5)
    report = peers.report(lambda fields: fields["taken"].get(STREAM, {}).get("last") == 256)
    assert report["taken"] == {STREAM: {"first": 0, "last": 256, "received": 128, "refused": 128, "lost": 0}}
    assert report["policy_lag"] == {**dict.fromkeys((*P50, *P99, "max"), 0), "stale": 128}


@pytest.mark.parametrize("peers", [[*OVERRIDES, "balance.mode=bounded"]], indirect=True)
def test_samplers_that_wait_go_on_when_the_critic_learner_is_another(peers):
    """What a sampler was to wait for has been lost with the former life: there is no limit to keep now."""
    _, other = played(peers, "actor_learner")
    peers.start()
    for taken in ({"sampler-0/1": 1_000_000}, {}):
        other.publish(taken=taken)
        while peers.next("policy").fields["collect_until"].keys() != taken.keys():
            pass
        other.restart()


ROUNDS = ["run.algorithm=ppo", "algorithm={hidden_sizes=[8]}", "balance={}", "components.sampler.count=1"]


@pytest.mark.parametrize("peers", [ROUNDS], indirect=True)
def test_on_policy_a_sampler_whose_rollouts_are_refused_may_collect_others(peers):
    """Nothing is trained on, so that no new policy would raise its limit: it would wait for ever."""
    peers.play("actor_learner")
    feed, other = Sampler(peers, 8, 16), OtherLearner(peers)
    other.publish()
    peers.start()
    first = peers.next("policy").fields
    assert first["collect_until"].keys() == {"*"}
    ahead = first["collect_until"]["*"]
    for number in (1, 2):
        reward = np.full_like(feed.rollout.arrays["reward"], np.nan)
        feed.push(1, encode(feed.next(reward=reward)))
        while (limits := peers.next("policy").fields)["collect_until"].get(STREAM) != number * 128 + ahead:
            pass
        assert limits["version"] == first["version"]


@pytest.mark.long("a learner is killed and has a second life")
@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_no_version_of_the_policy_is_given_twice(peers):
    """Killed before any checkpoint, the actor-learner begins to learn again, and counts its versions on: what
    its former life made is older than all that follows.
    """
    feed, other = played(peers, "actor_learner")
    newest = -1

    def give():
        feed.push(1)
        other.publish(critic_updates=100 + 10 * other.version)

    peers.meanwhile = give
    for _ in range(2):
        process = peers.start()
        hello = peers.next("hello")
        versions = []
        while len(versions) < 3:
            message = peers.next("policy")
            again = message.repeat and message.fields["version"] in versions  # of what came already
            if message.incarnation == hello.incarnation and not again:
                versions.append(message.fields["version"])
        assert newest < versions[0] < versions[1] < versions[2]
        process.kill()
        process.wait()
        peers.wait(0.1)
        newest = peers.between(None, None, "policy")[-1].fields["version"]
