"""Several critic-learners that train as one, as real processes that share gradients."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, channels
from spreeze_zmq.errors import PeerLost
from spreeze_zmq.replay import Batch
from spreeze_zmq.wire import Message
from tests.component.test_learners import Feed, publish_policy

TWO = ["components.critic_learner.count=2", "algorithm.hidden_sizes=[16]", "algorithm.precision=fp32"]
BATCH = 64

#: One of two processes: the gradient of its own batch, averaged, is written to a file.
AVERAGES = """
import os, sys
from pathlib import Path
import numpy as np
from spreeze_zmq.component.component import Component
from spreeze_zmq.learner import Ranks
from spreeze_zmq.plan.plan import Plan
from tests.component.test_ranks import batch_of, critic_of

plan, index = Plan.read(sys.argv[1]), int(sys.argv[2])
component = Component("critic_learner", plan, index)
half, ranks = critic_of(plan), Ranks(component, "cpu")
ranks.join()
half.backward(batch_of(index))
ranks.offer(half.gradient, received=index + 1, batch_size=(128, 64)[index])
while (shared := ranks.result(half.gradient, 0.01)) is None:
    component.poll()
assert (shared.received, shared.own, shared.ended, shared.batch_size) == (3, index + 1, False, 128)
np.save(f"{sys.argv[3]}/{index}.npy", half.gradient.numpy())
ranks.offer(half.gradient, received=0, ending=index == 1)
while (shared := ranks.result(half.gradient, 0.01)) is None:
    component.poll()
assert shared.ended and ranks.ended
assert np.array_equal(half.gradient.numpy(), np.load(f"{sys.argv[3]}/{index}.npy"))
component.stop("done")
component.close("done")
os._exit(0)
"""


def critic_of(plan):
    """The critic half of a plan, as every rank makes it."""
    algorithm = algorithms.get("sac")
    values = {name: value for name, value in plan.algorithm.items() if name != "name"}
    return algorithms.make(
        "critic", algorithm, algorithms.options_from(algorithm.Options, values), plan.environment, "cpu", 1
    )


def batch_of(index):
    """Transitions that end their episodes, so that no noise of a target action is in the gradient."""
    source = torch.Generator().manual_seed(index)
    return Batch(
        obs=torch.randn(BATCH, 3, generator=source),
        action=torch.rand(BATCH, 1, generator=source),
        reward=torch.randn(BATCH, generator=source),
        discount=torch.zeros(BATCH),
        next_obs=torch.zeros(BATCH, 3),
        weight=None,
    )


@pytest.mark.parametrize("peers", [TWO], indirect=True)
def test_the_mean_of_two_gradients_is_that_of_twice_the_batch(peers, tmp_path):
    """Each on half of the batch, in a process of its own. The batch that comes next is what the first has
    said; and where one says that it ends, neither moves.
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", AVERAGES, peers.folder.run_file, str(index), tmp_path])
        for index in range(2)
    ]
    peers.processes += processes
    assert [process.wait(60) for process in processes] == [0, 0]
    first, second = (np.load(tmp_path / f"{index}.npy") for index in range(2))
    assert np.array_equal(first, second)
    parts = [batch_of(index) for index in range(2)]
    whole = {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in ("obs", "action", "reward", "discount", "next_obs")
    }
    alone = critic_of(peers.plan)
    alone.backward(replace(parts[0], **whole))
    assert np.abs(alone.gradient.numpy()).max() > 0.01
    np.testing.assert_allclose(first, alone.gradient.numpy(), rtol=1e-4, atol=1e-6)


def pusher_to(peers, index):
    """A sampler's end that knows one of the two learners alone."""
    plan = peers.plan.channels["experience.critic_learner"]
    endpoint = (plan.endpoint, *plan.more_endpoints)[index]
    alone = replace(plan, endpoint=endpoint, more_endpoints=())
    return channels.open_channel(alone, "push", f"sampler-{index}", 1)


@pytest.mark.parametrize(
    "peers", [[*TWO, "algorithm.learning_starts=256", "balance.replay_ratio=4"]], indirect=True
)
def test_a_rank_without_samples_holds_the_updates_and_nothing_else(peers, halves):
    """While one has samples and the other none, no update is made but a checkpoint is; with samples for both
    they train; and when one is killed the other leaves with the exit code that says so.
    """
    publish_policy(peers, halves[1], 0)
    control = peers.peer("control", "critic_learner")
    ranks = [peers.start("critic_learner", index) for index in range(2)]
    feeds = []
    for index in range(2):
        peers.open["experience.critic_learner"] = pusher_to(peers, index)
        feeds.append(Feed(peers, "experience.critic_learner", "critic_learner"))

    def counters(meanwhile):
        while True:
            report = peers.wait("report", "critic_learner", "report", meanwhile)
            if report.sender == "critic_learner-0" and "env_steps" in report.fields["counters"]:
                return report.fields["counters"]

    while counters(feeds[0].push)["env_steps"] < 256:
        pass
    control.publish(Message("checkpoint", {"folder": "1"}))
    parts = [peers.wait("report", "critic_learner", "part") for _ in range(2)]
    assert {part.sender: list(part.fields["part"]) for part in parts} == {
        "critic_learner-0": ["critic_learner.pt"],
        "critic_learner-1": [],
    }
    assert counters(lambda: None)["critic_updates"] == 0
    while (counted := counters(feeds[1].push))["critic_updates"] < 4:
        pass
    assert counted["trained_transitions"] == 256 * counted["critic_updates"]
    ranks[1].kill()
    assert ranks[0].wait(60) == PeerLost.exit_code
    assert f"critic_learner-1 (process {ranks[1].pid})" in peers.logs()
    feeds[0].pusher.close()


@pytest.mark.parametrize(
    "peers",
    [[*TWO, "algorithm.batch_size=auto", "algorithm.learning_starts=256", "balance.replay_ratio=4"]],
    indirect=True,
)
def test_ranks_change_their_batch_after_the_same_update(peers, halves):
    """The first update is of the plan's batch, all others of the one that the broker asks for, on both."""
    publish_policy(peers, halves[1], 0)
    control = peers.peer("control", "critic_learner")
    for index in range(2):
        peers.start("critic_learner", index)
    feeds = []
    for index in range(2):
        peers.open["experience.critic_learner"] = pusher_to(peers, index)
        feeds.append(Feed(peers, "experience.critic_learner", "critic_learner"))
    trained = {}

    def push():
        for feed in feeds:
            if feed.sequence < 16:
                feed.push()

    def until(enough):
        while sorted(trained.values()) != [enough, enough]:
            report = peers.wait("report", "critic_learner", "report", push)
            trained[report.sender] = report.fields["counters"].get("trained_transitions", 0)
            if "critic_updates" in report.fields["counters"]:
                updates = report.fields["counters"]["critic_updates"]
        return updates

    control.publish(Message("set", {"role": "critic_learner", "option": "batch_size", "value": 64}))
    updates = until(4 * 128 * 16)
    assert updates == 1 + (4 * 128 * 16 - 256) // 64
    for index in range(2):
        log = (peers.folder.logs / f"critic_learner-{index}.log").read_text()
        assert log.count("batch size 256 -> 64; for 0.25 times the batch of 256") == 1
    feeds[0].pusher.close()
