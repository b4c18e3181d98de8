"""How the two learners, as real processes, keep the bound of the policy lag, over their lives too."""

import itertools

import pytest

from spreeze_zmq.wire import Message
from tests.component.test_learners import ACTOR, CRITIC, OVERRIDES, Feed, publish_critics, publish_policy

BOUNDED = [*OVERRIDES, "balance.max_policy_lag=2"]


@pytest.mark.parametrize("peers", [BOUNDED], indirect=True)
def test_what_is_too_stale_on_arrival_is_dropped_and_counted(peers, halves):
    """Under version 5 and a bound of 2, version 3 is received and version 2 refused; and a life that begins
    without a checkpoint hears from the policy how many transitions the run has received.
    """
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 5, env_steps=5000)
    peers.start("critic_learner")
    while peers.wait("report", "critic_learner", "report").fields["counters"]["env_steps"] < 5000:
        pass
    for count, version in enumerate((2, 3, 5, 0)):
        while feed.sequence == count:
            feed.push(version=version)
    taken = {}
    while taken.get("sampler-0/1", {}).get("last") != 512:
        report = peers.wait("report", "critic_learner", "report").fields
        taken = report["taken"]
    assert taken == {"sampler-0/1": {"first": 0, "last": 512, "received": 256, "refused": 256, "lost": 0}}
    assert report["policy_lag"] == {"p50": 0, "p99": 2, "max": 2, "stale": 256}
    assert report["counters"]["env_steps"] == 5000 + 256
    assert "refused a rollout of sampler-0 (1 so far): stale" in peers.logs()


@pytest.mark.parametrize("peers", [BOUNDED], indirect=True)
def test_nothing_is_received_before_a_policy_tells_how_old_it_is(peers, halves):
    """Rollouts of version 2 and 5 wait for a critic-learner that begins; it hears that 5 is the newest."""
    feed = Feed(peers, CRITIC, "critic_learner")
    feed.push(version=2)
    feed.push(version=5)
    peers.start("critic_learner")
    for _ in range(3):
        report = peers.wait("report", "critic_learner", "report").fields
        assert report["taken"] == {}
    publish_policy(peers, halves[1], 5)
    while not report["taken"]:
        report = peers.wait("report", "critic_learner", "report").fields
    assert report["taken"] == {
        "sampler-0/1": {"first": 0, "last": 256, "received": 128, "refused": 128, "lost": 0}
    }
    assert report["policy_lag"] == {"p50": 0, "p99": 0, "max": 0, "stale": 128}


@pytest.mark.parametrize("peers", [[*OVERRIDES, "balance.mode=bounded"]], indirect=True)
def test_samplers_that_wait_go_on_when_the_critic_learner_is_another(peers, halves):
    """What a sampler was to wait for has been lost with the former life: there is no limit to keep now."""
    peers.peer("policy", "actor_learner")
    critics = peers.peer("critic", "actor_learner")
    peers.start("actor_learner")
    for life, taken in ((1, {"sampler-0/1": 1_000_000}), (2, {})):
        critics.incarnation, critics._published = life, 0
        fields = {"version": 0, "critic_updates": 0, "env_steps": 384, "taken": taken}
        critics.publish(Message("critic", fields, {"parameters": halves[0].weights.numpy()}))
        while peers.wait("policy", "actor_learner").fields["collect_until"].keys() != taken.keys():
            pass


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_no_version_of_the_policy_is_given_twice(peers, halves):
    """Killed before any checkpoint, the actor-learner begins to learn again, and counts its versions on: what
    its former life made is older than all that follows.
    """
    feed = Feed(peers, ACTOR, "actor_learner")
    peers.peer("policy", "actor_learner")
    critics = peers.peer("critic", "actor_learner")
    counts, newest = itertools.count(100, 10), -1

    def give():
        updates = next(counts)
        feed.push()
        publish_critics(critics, halves, updates, updates)

    for _ in range(3):
        process = peers.start("actor_learner")
        hello = peers.wait("report", "actor_learner", "hello", give)
        versions = []
        while len(versions) < 3:
            message = peers.wait("policy", "actor_learner", meanwhile=give)
            if message.incarnation == hello.incarnation:
                versions.append(message.fields["version"])
        assert newest < versions[0] < versions[1] < versions[2]
        process.kill()
        process.wait()
        while (message := peers.peer("policy", "actor_learner").receive()) is not None:
            versions.append(message.fields["version"])
        newest = versions[-1]
