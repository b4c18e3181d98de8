"""The two learners as real processes; the test is their sampler, their broker and each one's other half."""

import time

import numpy as np
import pytest

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.component import Component
from spreeze_zmq.learner import Learner
from spreeze_zmq.run.checkpoint import Part, complete
from spreeze_zmq.wire import Message, rollout_message

CRITIC, ACTOR = "experience.critic_learner", "experience.actor_learner"
OVERRIDES = ["algorithm.hidden_sizes=[16]", "algorithm.learning_starts=256", "balance.replay_ratio=4"]


class Feed:
    """Plays a sampler: random rollouts of 8 steps in 16 environments."""

    def __init__(self, peers, channel, role):
        self.pusher, self.fields = peers.peer(channel, role, "sampler-0"), peers.plan.channels[channel].fields
        self.rng, self.sequence = np.random.default_rng(0), 0

    def push(self, obs_size=3, version=0):
        """One rollout, if there is a place."""
        shape = (8, 16)
        rollout = Rollout(
            *("sampler-0", 1, self.sequence, (self.sequence + 1) * 128, version, *shape),
            obs=self.rng.normal(size=(9, 16, obs_size)).astype(np.float32),
            action=self.rng.uniform(-2, 2, (*shape, 1)).astype(np.float32),
            reward=self.rng.normal(size=shape).astype(np.float32),
            terminated=np.zeros(shape, np.bool_),
            truncated=np.zeros(shape, np.bool_),
            final_obs=np.zeros((0, obs_size), np.float32),
            final_index=np.zeros((0, 2), np.int32),
        )
        if self.pusher.try_push(rollout_message(rollout, self.fields)):
            self.sequence += 1


def publish_policy(peers, actor, version, **extras):
    """Play the actor-learner."""
    fields = {"version": version, "critic_updates": 0, "actor_updates": 0, "extras": extras}
    message = Message("policy", {**fields, "description": actor.description()}, actor.policy_arrays())
    peers.peer("policy", "critic_learner").publish(message)


def publish_critics(publisher, halves, version, updates):
    """Play the critic-learner."""
    fields = {"version": version, "critic_updates": updates, "env_steps": 384}
    publisher.publish(Message("critic", fields, {"parameters": halves[0].weights.numpy()}))


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_the_critic_learner_keeps_the_ratio_and_waits_for_samples(peers, halves):
    """With four transitions trained for each received it stops after 4 x 2048 / 256 updates, starved, not
    spinning.
    """
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 0)
    peers.start("critic_learner")

    def feed_some():
        if feed.sequence < 16:
            feed.push()

    def report():
        return peers.wait("report", "critic_learner", "report", feed_some).fields

    fields = report()
    while fields["counters"].get("critic_updates", 0) < 32:
        fields = report()
    settled, later = report(), report()
    assert settled["counters"]["env_steps"] == 2048
    assert later["counters"]["critic_updates"] == settled["counters"]["critic_updates"] == 32
    assert later["gauges"]["replay_ratio"] == 4
    assert {"critic_loss", "q_mean"} <= later["gauges"].keys()  # q_mean of an earlier update than the last
    assert later["clock_s"]["starved"] - settled["clock_s"]["starved"] > 0.2
    assert later["cpu_s"] - settled["cpu_s"] < 0.2
    assert later["taken"] == {
        "sampler-0/1": {"first": 0, "last": 2048, "received": 2048, "refused": 0, "lost": 0}
    }


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_the_critic_learner_publishes_critics_that_the_actor_half_takes(peers, halves):
    """The published parameters load into the other half and move with the updates."""
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 0)
    peers.peer("critic", "critic_learner")
    peers.start("critic_learner")
    first = peers.wait("critic", "critic_learner")
    while True:
        message = peers.wait("critic", "critic_learner", meanwhile=feed.push)
        if message.fields["critic_updates"] > 0:
            break
    halves[1].load_critic(message.arrays["parameters"])
    assert message.fields["version"] > first.fields["version"]
    assert not np.array_equal(message.arrays["parameters"], first.arrays["parameters"])


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_a_rollout_of_another_environment_is_refused_and_counted(peers, halves):
    """A wrong observation shape is one line in the log and dropped in the account; the next good one is
    taken.
    """
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 0)
    peers.start("critic_learner")
    peers.wait("report", "critic_learner", "hello")
    feed.push(obs_size=5)
    feed.push()
    while not (taken := peers.wait("report", "critic_learner", "report").fields["taken"]):
        pass
    while taken["sampler-0/1"]["last"] < 256:
        taken = peers.wait("report", "critic_learner", "report").fields["taken"]
    assert taken == {"sampler-0/1": {"first": 0, "last": 256, "received": 128, "refused": 128, "lost": 0}}
    assert "rollout of sampler-0 (1 so far): misfit: obs is (5,) for each step, expected (3,)" in peers.logs()


@pytest.mark.parametrize("peers", [[*OVERRIDES, "components.actor_learner.slack_updates=0"]], indirect=True)
def test_the_actor_learner_follows_the_critic(peers, halves):
    """From where they met it trains as often as the critic does, publishes it, and then waits."""
    feed = Feed(peers, ACTOR, "actor_learner")
    peers.peer("policy", "actor_learner")
    critics = peers.peer("critic", "actor_learner")
    peers.start("actor_learner")
    first = peers.wait("policy", "actor_learner")
    assert (first.fields["version"], first.fields["actor_updates"]) == (0, 0)
    for _ in range(3):
        feed.push()
    publish_critics(critics, halves, 0, 100)
    for _ in range(3):  # a second or so: it has met the critics
        peers.wait("report", "actor_learner", "report")
    publish_critics(critics, halves, 1, 120)
    while True:
        report = peers.wait("report", "actor_learner", "report").fields
        if report["counters"]["actor_updates"] == 20:
            break
        assert report["counters"]["actor_updates"] < 20
    later = peers.wait("report", "actor_learner", "report").fields
    assert later["counters"]["actor_updates"] == 20
    newest = peers.peer("policy", "actor_learner").newest()
    assert newest.fields["version"] >= 1
    assert newest.fields["extras"]["env_steps"] == 384
    assert not np.array_equal(newest.arrays["parameters"], first.arrays["parameters"])


@pytest.mark.parametrize("peers", [[*OVERRIDES, "components.critic_learner.stop_grace_s=1.0"]], indirect=True)
def test_a_learner_that_is_told_to_stop_leaves_though_samplers_go_on(peers, halves):
    """What is under way is taken in, but not for ever: it says goodbye within its grace."""
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 0)
    process = peers.start("critic_learner")
    while not peers.wait("report", "critic_learner", "report", feed.push).fields.get("taken"):
        pass
    process.terminate()
    peers.wait("report", "critic_learner", "bye", feed.push)
    assert process.wait(30) == 0


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_a_learner_restores_what_it_saved(peers, halves):
    """A checkpoint's part on request; a second life goes on with its counters and parameters."""
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 0)
    control = peers.peer("control", "critic_learner")
    peers.peer("critic", "critic_learner")
    first = peers.start("critic_learner")
    while peers.wait("critic", "critic_learner", meanwhile=feed.push).fields["critic_updates"] < 5:
        pass
    control.publish(Message("checkpoint", {"folder": "1"}))
    part = peers.wait("report", "critic_learner", "part").fields
    assert list(part["part"]) == ["critic_learner.pt"]
    first.kill()
    first.wait()
    complete(peers.folder.checkpoints / "1", [Part.from_dict(file) for file in part["part"].values()], {})
    peers.start("critic_learner")
    hello = peers.wait("report", "critic_learner", "hello")
    while (report := peers.wait("report", "critic_learner", "report")).incarnation != hello.incarnation:
        pass
    assert report.fields["counters"]["critic_updates"] >= 5
    assert report.fields["counters"]["env_steps"] > 0
    assert "going on from" in peers.logs()


IN_ORDER = [
    *(*OVERRIDES, "balance.mode=lockstep", "components.sampler.count=1", "components.sampler.envs=16"),
    *("components.sampler.rollout_steps=8", "run.stop.env_steps=1024"),
]


@pytest.mark.parametrize("peers", [IN_ORDER], indirect=True)
def test_in_order_the_last_checkpoint_waits_for_the_policy_that_is_owed(peers, halves):
    """Though all samples were trained on: the policy is part of what is saved, whenever it comes. The critics
    are a version ahead of the policy that they need.
    """
    feed = Feed(peers, CRITIC, "critic_learner")
    control = peers.peer("control", "critic_learner")
    peers.peer("critic", "critic_learner")
    publish_policy(peers, halves[1], 0)
    peers.start("critic_learner")

    answered = updates = 0

    def feed_some():
        if feed.sequence < min(8, 2 + answered):
            feed.push(version=answered)

    while updates < 4 * 1024 // 256:
        updates = peers.wait("critic", "critic_learner", meanwhile=feed_some).fields["critic_updates"]
        if 2 < updates < 4 * 1024 // 256:
            answered += 1
            publish_policy(peers, halves[1], answered)
    control.publish(Message("checkpoint", {"folder": "1", "env_steps": 1024}))
    until_s = time.monotonic() + 2.0
    while time.monotonic() < until_s:
        assert peers.wait("report", "critic_learner").kind != "part"
    publish_policy(peers, halves[1], answered + 1)
    assert peers.wait("report", "critic_learner", "part").fields["folder"] == "1"


AUTO = [*OVERRIDES, "algorithm.batch_size=auto"]


def set_batch(control, role, size):
    """Play the broker."""
    control.publish(Message("set", {"role": role, "option": "batch_size", "value": size}))


@pytest.mark.parametrize("peers", [AUTO], indirect=True)
def test_the_critic_learner_goes_on_with_the_batch_that_it_is_told(peers, halves):
    """More updates of the same samples, the ratio kept, the learning rate by the rule; another role's batch
    is none of its own, and a second life hears it again.
    """
    feed = Feed(peers, CRITIC, "critic_learner")
    publish_policy(peers, halves[1], 0)
    control = peers.peer("control", "critic_learner")

    def settled(rollouts):
        """What is reported when so many have been trained on as often as the ratio allows."""

        def push():
            if feed.sequence < rollouts:
                feed.push()

        while True:
            report = peers.wait("report", "critic_learner", "report", push).fields
            if report["counters"].get("trained_transitions") == 4 * 128 * rollouts:
                return report["counters"]["critic_updates"], report["gauges"]

    process = peers.start("critic_learner")
    updates, gauges = settled(8)
    assert (updates, gauges["batch_size"], gauges["learning_rate"]) == (16, 256, pytest.approx(3e-3))
    set_batch(control, "actor_learner", 128)
    set_batch(control, "critic_learner", 64)
    while gauges["batch_size"] != 64:
        gauges = peers.wait("report", "critic_learner", "report").fields["gauges"]
    updates, gauges = settled(12)
    assert (updates, gauges["replay_ratio"]) == (16 + 32, 4)
    assert gauges["learning_rate"] == pytest.approx(3e-3 / 2)
    assert "batch size 256 -> 64; for 0.25 times the batch of 256: learning_rate 0.003 x" in peers.logs()
    assert "tau 1 - (1 - 0.02)^0.25 = 0.005038" in peers.logs()
    process.kill()
    process.wait()
    peers.start("critic_learner")
    hello = peers.wait("report", "critic_learner", "hello")
    while (report := peers.wait("report", "critic_learner", "report")).fields["gauges"]["batch_size"] != 64:
        pass
    assert report.incarnation == hello.incarnation


@pytest.mark.parametrize("peers", [AUTO], indirect=True)
def test_the_actor_learner_goes_on_with_the_batch_that_it_is_told(peers, halves):
    """It says so, and goes on training; the arithmetic that it counts never falls."""
    feed = Feed(peers, ACTOR, "actor_learner")
    peers.peer("policy", "actor_learner")
    critics = peers.peer("critic", "actor_learner")
    control = peers.peer("control", "actor_learner")
    set_batch(control, "critic_learner", 64)
    set_batch(control, "actor_learner", 128)
    peers.start("actor_learner")
    peers.wait("policy", "actor_learner")
    feed.push()
    publish_critics(critics, halves, 0, 100)
    for _ in range(3):  # a second or so: it has met the critics
        peers.wait("report", "actor_learner", "report")
    publish_critics(critics, halves, 1, 120)
    while peers.wait("report", "actor_learner", "report").fields["counters"]["actor_updates"] == 0:
        pass
    assert "batch size 256 -> 128; for 0.5 times the batch of 256: learning_rate 0.003 x" in peers.logs()
    before = peers.wait("report", "actor_learner", "report").fields["counters"]
    set_batch(control, "actor_learner", 64)
    counted = before
    for version in range(2, 30):
        publish_critics(critics, halves, version, 100 + 20 * version)
        now = peers.wait("report", "actor_learner", "report").fields["counters"]
        assert now["actor_flops"] >= counted["actor_flops"] > 0
        counted = now
        if "batch size 128 -> 64" in peers.logs() and now["actor_updates"] > before["actor_updates"] + 1:
            break
    assert "batch size 128 -> 64" in peers.logs()
    gained = (counted["actor_flops"] - before["actor_flops"]) / before["actor_flops"]
    assert gained <= (counted["actor_updates"] - before["actor_updates"]) / before["actor_updates"]


LONE = ("run.env=CartPole-v1", "algorithm={hidden_sizes=[8]}", "balance={}")


@pytest.mark.parametrize(
    "peers", [(*LONE, f"run.algorithm={name}") for name in ("dqn", "pqn")], indirect=True
)
def test_a_lone_learner_makes_no_actor_updates(peers):
    """There is no actor-learner: its updates are those of the critics, whichever way it learns."""
    learner = Learner(Component("critic_learner", peers.plan, 0))
    learner.half.num_updates = 7
    counters = learner.counters()
    for channel in learner.component._channels.values():
        channel.close()
    assert counters["critic_updates"] == 7
    assert "actor_updates" not in counters
