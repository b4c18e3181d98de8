"""An algorithm of one's own in learners: its relabelling in both, and what is odd about it."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.broker.hearing import Hearing
from spreeze_zmq.broker.notes import Notes
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.component import Component
from spreeze_zmq.launcher.news import News
from spreeze_zmq.learner import Learner
from spreeze_zmq.learner.at_hand import random_batch_of, random_rollout
from spreeze_zmq.plan import devices
from spreeze_zmq.wire import Message

HERE = "tests.component.test_own_relabelling"


class Reached(SAC):
    """Keeps the steps that reach where the episode ends, with that as their goal."""

    def relabel(self, batch, episode):
        """As the class says."""
        reached = episode.goals.achieved(episode.obs)[-1]
        wanted = np.broadcast_to(reached, (len(batch), len(reached)))
        batch = episode.goals.relabelled(batch, episode, wanted)
        return batch.rows(batch.reward[:, -1] == 0.0)


class Still(SAC):
    """Its targets keep their first weights."""

    after_critic_step = Algorithm.after_critic_step


NAMES = ("learning_rate", "replay_size", "actor_replay_size", "mine")


class Named(SAC):
    """Its losses give metrics by names that are the library's."""

    def critic_loss(self, batch):
        """As the class says."""
        return self.named(super().critic_loss(batch))

    def policy_loss(self, batch):
        """As the class says."""
        return self.named(super().policy_loss(batch))

    def named(self, loss):
        """A loss with these, and with one of another name."""
        return loss._replace(metrics={**loss.metrics, **dict.fromkeys(NAMES, torch.tensor(-1.0))})


def ending(env):
    """A rollout whose last step ends the episode of every environment."""
    made = random_rollout(env)
    truncated, last = made.truncated.copy(), np.full(16, 15)
    truncated[-1] = True
    index = np.stack([last, np.arange(16)], 1).astype(np.int32)
    return replace(made, truncated=truncated, final_obs=made.obs[-1], final_index=index)


def learner(peers, role):
    """In this process, with nobody around it."""
    made = Learner(Component(role, peers.plan, 0))
    for channel in made.component._channels.values():
        channel.close()
    return made


@pytest.mark.parametrize("role", ["critic_learner", "actor_learner"])
@pytest.mark.parametrize(
    "peers",
    [["run.env=tests.system.maze:Maze", f"run.algorithm={HERE}:Reached", "algorithm.hidden_sizes=[8]"]],
    indirect=True,
)
def test_one_that_chooses_by_the_reward_chooses_alike_in_both(peers, role):
    """The actor-learner keeps no reward, and else had that of the goal which was wanted."""
    replay = learner(peers, role).experience.replay
    replay.add(ending(peers.plan.environment))
    assert len(replay) == 256 + 16


@pytest.mark.parametrize(
    "peers",
    [
        [
            *("run.env=tests.benchmarks.sick_environments:Goal", f"run.algorithm={HERE}:Reached"),
            "algorithm.hidden_sizes=[8]",
        ]
    ],
    indirect=True,
)
def test_what_no_reward_is_known_of_is_named(peers):
    """Not kept with the reward of another goal."""
    replay = learner(peers, "critic_learner").experience.replay
    with pytest.raises(InvalidEnvironment, match="it has no compute_reward"):
        replay.add(ending(peers.plan.environment))


@pytest.mark.parametrize(
    ("role", "taken"),
    [
        ("critic_learner", {"learning_rate", "replay_size"}),
        ("actor_learner", {"learning_rate", "replay_size", "actor_replay_size"}),
    ],
)
@pytest.mark.parametrize(
    "peers", [[f"run.algorithm={HERE}:Named", "algorithm.hidden_sizes=[8]"]], indirect=True
)
def test_a_metric_by_a_name_of_the_librarys_is_another_figure(peers, role, taken):
    """Such an algorithm trained, with one of the two drawn; later it was refused."""
    made, plan = learner(peers, role), peers.plan
    half = made.half
    batch = random_batch_of(Named.fields_of(half.part), plan.environment, half.options, 64, "cpu")
    made.metrics = half.update(batch)
    before, gauges = made.experience.gauges(), made.gauges()
    assert {name: gauges[name] for name in before} == before
    for name in NAMES:
        named = f"{half.part}_loss_{name}" if name in taken else name
        assert gauges[named] == -1.0


@pytest.mark.parametrize(
    "peers", [[f"run.algorithm={HERE}:Still", "algorithm.hidden_sizes=[8]"]], indirect=True
)
def test_what_is_odd_about_a_learner_is_told_and_is_no_failure(peers, monkeypatch):
    """Its algorithm, and that it cannot take the GPU of the machine where it has its place."""
    told = []
    monkeypatch.setattr(
        Component,
        "report",
        lambda self, kind, fields: told.append(Message(kind, fields, {}, self.name, self.incarnation)),
    )
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: False)
    monkeypatch.setattr(devices, "num_cuda_devices", lambda: 1)
    peers.plan = replace(peers.plan, left_to_node=("critic_learner.device",))
    learner(peers, "critic_learner")
    record = RunRecord(peers.plan)
    with contextlib.closing(Notes(peers.folder, SimpleNamespace(publish=lambda message: True))) as notes:
        broker = Hearing(peers.plan, record, notes, SimpleNamespace(), SimpleNamespace(), lambda: 1.0)
        for message in told:
            broker.hear(message)
    status = record.status("starting", {}, 1.0)
    gpu, targets = News(peers.folder).of(status)
    assert gpu.startswith(
        'critic_learner-0: components.critic_learner.device = "auto": the CPU is taken: this machine has '
    )
    assert targets.startswith("critic_learner-0: Still has no after_critic_step: the targets ")
    assert targets.endswith("keep their first weights")
    assert status["num_failures"] == 0
