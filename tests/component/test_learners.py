"""The two learners as real processes; the test is their sampler, their broker and each one's other half."""

import json
import os
import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms.packing import Layout
from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.component import LAST_POLICY_S, Component
from spreeze_zmq.learner import Learner, publication
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.peers.players import OtherLearner, Sampler
from spreeze_zmq.replay import RoundStore
from spreeze_zmq.run.checkpoint import Part, complete, write_part
from spreeze_zmq.wire import MAX_COUNT
from spreeze_zmq.wire.channels import open_channel
from tests.component.conftest import DEADLINE_S
from tests.pace import slowness

OVERRIDES = ["algorithm.hidden_sizes=[16]", "algorithm.learning_starts=256", "balance.replay_ratio=4"]


def played(peers, role, **fields):
    """The peers of a learner: rollouts of 8 steps in 16 environments, and a first policy for a critic-learner
    that has an actor-learner.
    """
    peers.play(role)
    feed, other = Sampler(peers, 8, 16), OtherLearner(peers)
    if role == "critic_learner":
        other.publish(**fields)
    return feed, other


def feed_until(peers, feed, num_rollouts):
    """Let the sampler push until so many rollouts are on their way."""
    peers.meanwhile = lambda: feed.push(num_rollouts - feed.num_pushed)


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_the_critic_learner_keeps_the_ratio_and_waits_for_samples(peers):
    """With four transitions trained on for each received after the first 256 it stops after 4 x 1792 / 256
    updates, starved, not spinning.
    """
    feed, _ = played(peers, "critic_learner")
    feed_until(peers, feed, 16)
    peers.start()
    settled = peers.report(lambda fields: fields["counters"].get("critic_updates", 0) >= 28)
    settled, later = peers.report(), peers.report()
    assert settled["counters"]["env_steps"] == 2048
    assert later["counters"]["critic_updates"] == settled["counters"]["critic_updates"] == 28
    assert later["counters"]["sampled_transitions"] == 1792
    assert later["gauges"]["replay_ratio"] == 4
    assert {"critic_loss", "q_mean"} <= later["gauges"].keys()  # q_mean of an earlier update than the last
    assert later["clock_s"]["starved"] - settled["clock_s"]["starved"] > 0.2
    assert later["cpu_s"] - settled["cpu_s"] < 0.2 * slowness()


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_no_count_grows_beyond_what_a_message_can_say(peers):
    """The broker says that the run has the most env steps that there may be, and more come."""
    feed, _ = played(peers, "critic_learner")

    def both():
        feed.push(1)
        peers.publish("control", "status", env_steps=MAX_COUNT - 1)

    peers.meanwhile = both
    peers.start()
    report = peers.report(lambda fields: fields["counters"].get("sampled_transitions", 0) > 2048)
    assert report["counters"]["env_steps"] == MAX_COUNT - 1
    while peers.next("critic").fields["env_steps"] < MAX_COUNT - 1:
        pass


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_the_critic_learner_publishes_critics_that_the_actor_half_takes(peers):
    """The published parameters load into the other half and move with the updates."""
    feed, other = played(peers, "critic_learner")
    peers.meanwhile = lambda: feed.push(1)
    peers.start()
    first = message = peers.next("critic")
    while message.fields["critic_updates"] == first.fields["critic_updates"]:
        message = peers.next("critic")
    other.half.load_critic(message.arrays["parameters"])
    assert message.fields["version"] > first.fields["version"]
    assert not np.array_equal(message.arrays["parameters"], first.arrays["parameters"])


def packed_by_another(half):
    """A foreign critic-learner's parameters: as many, the twin networks one after the other, each layer's
    bias before its weight; and the layout that it names.
    """
    flat, begin, tensors = half.weights.detach().cpu().numpy(), 0, []
    for name, shape in half._networks.own.packing.tensors:
        size = int(np.prod(shape))
        tensors.append((name, flat[begin : begin + size].reshape(shape)))
        begin += size
    named = [(f"{place}.{name}", each[place]) for place in (0, 1) for name, each in reversed(tensors)]
    packing = Layout(tuple((name, each.shape) for name, each in named))
    return np.concatenate([each.ravel() for _, each in named]), packing.layout


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_a_foreign_critic_learner_of_another_packing_is_refused_by_name(peers):
    """Of equal size: it trains nothing, and the line names it, both layouts and what was expected. One that
    names no layout is taken by its size, which is said once; and so are critics of the right layout.
    """
    feed, other = played(peers, "actor_learner")
    feed_until(peers, feed, 1)
    weights, layout = packed_by_another(other.half)
    counts = {"version": 0, "critic_updates": 100, "env_steps": 128}
    assert weights.shape == tuple(other.half.weights.shape)
    assert layout != other.half.layout
    peers.start()
    peers.next("policy")
    peers.publish("critic", "critic", {"parameters": weights}, **counts, layout=layout)
    refused = peers.report(lambda fields: fields.get("refused"))["refused"][0]
    assert (refused["sender"], refused["kind"], refused["word"]) == ("peer-0", "critic", "bad_parameters")
    assert (refused["count"], refused["good"]) == (1, 0)
    assert refused["first"].startswith(
        f"critics packed as layout '{layout}', expected '{other.half.layout}' ("
    )
    assert "critics.layers.0.weight:2,16,4" in refused["first"]
    assert f"refused a critic of peer-0 (1 so far): bad_parameters: {refused['first']}" in peers.logs()
    assert peers.report()["counters"]["actor_updates"] == 0
    plain = {"parameters": other.half.weights.detach().cpu().numpy().copy()}
    versions, report = count(1), peers.report()
    while not report["counters"]["actor_updates"]:  # it meets the critics at the first version that it takes
        version = next(versions)
        counts |= {"version": version, "critic_updates": 100 + 20 * version}
        peers.publish("critic", "critic", plain, **counts)
        report = peers.later_report()
    assert peers.logs().count("the critic of peer-0 names no layout") == 1


@pytest.mark.parametrize("peers", [[*OVERRIDES, "components.critic_learner.stop_grace_s=1.0"]], indirect=True)
def test_a_learner_that_is_told_to_stop_leaves_though_samplers_go_on(peers):
    """What is under way is taken in, but not for ever: it says goodbye within its grace."""
    feed, _ = played(peers, "critic_learner")
    peers.meanwhile = lambda: feed.push(1)
    process = peers.start()
    peers.report(lambda fields: fields.get("taken"))
    process.terminate()
    peers.next("bye")
    assert process.wait(30) == 0


@pytest.mark.parametrize("peers", [[*OVERRIDES, "algorithm.hidden_sizes=[256, 256]"]], indirect=True)
def test_the_last_policy_reaches_a_reader_that_was_busy(peers):
    """An evaluator that has read nothing until the run ends, whose queue is full of older policies: the
    learner waits for it, and it gets the policy that the learner's last words name.
    """
    feed, other = played(peers, "actor_learner")
    busy = open_channel(peers.plan.channels["policy"], "sub", "evaluator-0", 5)
    versions = count(1)

    def feed_it():
        feed.push(1)
        other.publish(critic_updates=20 * next(versions))

    peers.meanwhile = feed_it
    process = peers.start()
    peers.report(lambda fields: fields["counters"].get("policy_version", 0) >= 30)
    peers.meanwhile = lambda: None
    process.terminate()
    time.sleep(0.3)  # it is busy
    found = [-1]

    def read():
        if (message := busy.newest(LAST_POLICY_S)) is not None:
            found.append(message.fields["version"])
        return found[-1]

    peers.meanwhile = read
    last = peers.next("bye").fields["counters"]["policy_version"]
    peers.wait(DEADLINE_S, lambda: read() == last)
    busy.close()
    assert found[-1] == last


@pytest.mark.long("a learner has two lives")
@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_a_learner_restores_what_it_saved(peers):
    """A checkpoint's part on request; a second life goes on with its counters and parameters, and counts the
    env steps that the broker knows of.
    """
    feed, _ = played(peers, "critic_learner")
    peers.meanwhile = lambda: feed.push(1)
    first = peers.start()
    while peers.next("critic").fields["critic_updates"] < 5:
        pass
    for folder in ("", "../1", "x" * 201, "x" * 60_000, "é", "1"):  # the last is a name
        peers.publish("control", "checkpoint", folder=folder)
    part = peers.next("part").fields
    assert part["folder"] == "1"
    assert list(part["part"]) == ["critic_learner.pt"]
    first.kill()
    first.wait()
    complete(peers.folder.checkpoints / "1", [Part.from_dict(file) for file in part["part"].values()], {})
    peers.start()
    peers.next("hello")
    counters = peers.report()["counters"]
    assert counters["critic_updates"] >= 5
    assert 0 < counters["env_steps"] < 10**6
    assert "going on from" in peers.logs()
    peers.publish("control", "status", env_steps=10**6)
    assert peers.report(lambda fields: fields["counters"]["env_steps"] >= 10**6)


IN_ORDER = [
    *(*OVERRIDES, "balance.mode=lockstep", "components.sampler.count=1", "components.sampler.envs=16"),
    *("components.sampler.rollout_steps=8", "run.stop.env_steps=1024"),
]


@pytest.mark.parametrize("peers", [IN_ORDER], indirect=True)
def test_in_order_the_last_checkpoint_waits_for_the_policy_that_is_owed(peers):
    """Though all samples were trained on: the policy is part of what is saved, whenever it comes. The critics
    are a version ahead of the policy that they need.
    """
    feed, other = played(peers, "critic_learner")

    def feed_some():
        feed.version = other.version - 1
        feed.push(min(8, 4 + feed.version) - feed.num_pushed)

    peers.meanwhile = feed_some
    peers.start()
    updates, due = 0, 4 * (1024 - 256) // 256
    while updates < due:
        updates = peers.next("critic").fields["critic_updates"]
        if 2 < updates < due:
            other.publish()
    peers.publish("control", "checkpoint", folder="1", env_steps=1024, at=1024)
    assert not peers.wait(2.0, lambda: peers.rest("part"))
    other.publish()
    assert peers.next("part").fields["folder"] == "1"


AUTO = [*OVERRIDES, "algorithm.batch_size=auto"]


def set_batch(peers, role, size):
    """Play the broker."""
    peers.publish("control", "set", role=role, option="batch_size", value=size)


@pytest.mark.long("a learner has two lives")
@pytest.mark.parametrize("peers", [AUTO], indirect=True)
def test_the_critic_learner_goes_on_with_the_batch_that_it_is_told(peers):
    """More updates of the same samples, the ratio kept, the learning rate by the rule; another role's batch
    is none of its own, and a second life hears it again.
    """
    feed, _ = played(peers, "critic_learner")

    def settled(rollouts):
        """What is reported when so many have been trained on as often as the ratio allows."""
        feed_until(peers, feed, rollouts)
        due = 4 * (128 * rollouts - 256)
        fields = peers.report(lambda fields: fields["counters"].get("trained_transitions") == due)
        return fields["counters"]["critic_updates"], fields["gauges"]

    process = peers.start()
    updates, gauges = settled(10)
    assert (updates, gauges["batch_size"], gauges["learning_rate"]) == (16, 256, pytest.approx(3e-3))
    set_batch(peers, "actor_learner", 128)
    set_batch(peers, "critic_learner", 64)
    peers.report(lambda fields: fields["gauges"]["batch_size"] == 64)
    updates, gauges = settled(14)
    assert (updates, gauges["replay_ratio"]) == (16 + 32, 4)
    assert gauges["learning_rate"] == pytest.approx(3e-3 / 2)
    assert "batch size 256 -> 64; for 0.25 times the batch of 256: learning_rate 0.003 x" in peers.logs()
    assert "tau 1 - (1 - 0.02)^0.25 = 0.005038" in peers.logs()
    process.kill()
    process.wait()
    peers.start()
    peers.next("hello")
    peers.report(lambda fields: fields["gauges"]["batch_size"] == 64)


@pytest.mark.parametrize("peers", [AUTO], indirect=True)
def test_the_actor_learner_goes_on_with_the_batch_that_it_is_told(peers):
    """It says so, and goes on training; the arithmetic that it counts never falls."""
    feed, other = played(peers, "actor_learner")
    set_batch(peers, "critic_learner", 64)
    set_batch(peers, "actor_learner", 128)
    feed_until(peers, feed, 1)

    def publish():
        other.publish(critic_updates=100 + 20 * other.version)

    peers.start()
    said = "batch size 256 -> 128; for 0.5 times the batch of 256: learning_rate 0.003 x"
    peers.until("", "its batch", lambda: said in peers.logs())
    before = peers.report()["counters"]
    while not before["actor_updates"]:  # it meets the critics at the first version that it takes
        publish()
        before = peers.later_report()["counters"]
    set_batch(peers, "actor_learner", 64)
    peers.until("", "another batch", lambda: "batch size 128 -> 64" in peers.logs())
    counted = peers.later_report()["counters"]
    enough = counted["actor_updates"] + 2
    while counted["actor_updates"] < enough:
        publish()
        now = peers.later_report()["counters"]
        assert now["actor_flops"] >= counted["actor_flops"] > 0
        counted = now
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


@pytest.mark.parametrize("peers", [(*LONE, "run.algorithm=pqn", "components.sampler.count=1")], indirect=True)
def test_the_record_of_a_long_run_of_rounds_has_ever_fewer_of_them(peers, monkeypatch):
    """A week of short rounds would fill the disk."""
    monkeypatch.setattr(publication, "WHOLE_RECORD", 2)
    learner = Learner(Component("critic_learner", peers.plan, 0))
    made = random_rollout(learner.component.environment)
    learner.publish()
    for _ in range(9):
        learner.experience.add(replace(made, policy_version=learner.outlet.versions.newest))
        while learner.experience.ready:
            learner.update()
        learner.publish_if_due()
    for channel in learner.component._channels.values():
        channel.close()
    lines = [json.loads(line) for line in learner.record.path.read_text().splitlines()]
    assert [line["rounds"] for line in lines] == [1, 2, 4, 8]


class Payload:
    """Code that runs where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_a_checkpoint_of_others_runs_nothing(peers, tmp_path):
    """Whole by its manifest, with code in place of tensors: one line that names the file, and no more."""
    folder, executed = peers.folder.checkpoints / "1", tmp_path / "executed"
    evil = {"half": Payload(executed)}
    part = write_part(folder, "critic_learner.pt", lambda path: torch.save(evil, path))
    complete(folder, [part], {})
    component = Component("critic_learner", peers.plan, 0)
    vault = Vault(component, dict, RoundStore(1, "cpu"), lambda: True)
    with pytest.raises(
        CheckpointError, match=r"critic_learner\.pt cannot be read: .*never run; resume"
    ) as refusal:
        vault.restore()
    assert "\n" not in str(refusal.value)
    assert not executed.exists()
    torch.load(folder / part.name, weights_only=False)  # else it would prove nothing
    assert executed.exists()


@pytest.mark.parametrize("peers", [OVERRIDES], indirect=True)
def test_a_torn_checkpoint_is_told_with_the_one_that_the_learner_goes_on_from(peers, monkeypatch):
    """Training falls back by minutes, and a restart alone would be seen."""
    folders, told = [peers.folder.checkpoints / name for name in "12"], []
    for folder in folders:
        part = write_part(folder, "critic_learner.pt", lambda path: torch.save({"half": 1}, path))
        complete(folder, [part], {})
    os.truncate(folders[1] / part.name, 17)
    monkeypatch.setattr(Component, "report", lambda *message: told.append(message[1:]))
    component = Component("critic_learner", peers.plan, 0)
    assert Vault(component, dict, RoundStore(1, "cpu"), lambda: True).restore() == {"half": 1}
    [(kind, fields)] = told
    assert kind == "failure"
    assert fields["summary"].startswith(f"checkpoint skipped: {folders[1]}/critic_learner.pt: it has")
    assert fields["summary"].endswith(f"goes on from {folders[0]}")
