"""What the critic-learner alone moves, the actor-learner must not read without a word."""

from dataclasses import dataclass

import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions, RolloutOptions
from spreeze_zmq.algorithms.distributions import Normal
from spreeze_zmq.learner.at_hand import random_round
from tests.unit.algorithms.shipped import BOX


class Scaled(Algorithm):
    """Its policy's loss is divided by a number that the critic-learner moves."""

    Options = ReplayOptions
    group = "targets"

    def networks(self):
        self.pi = Normal(self.env)
        groups = {"critic": {"q": nn.mlp([3, 4, 1])}, "policy": {"policy": nn.mlp([3, 8, 4])}, "targets": {}}
        groups[self.group]["scale"] = nn.Number(1.0, learned=False)
        return Networks(**groups)

    def distribution(self):
        return self.pi

    def critic_loss(self, batch):
        return self.q(batch.obs).square().mean()

    def after_critic_step(self):
        self.scale().add_(2.0)

    def policy_loss(self, batch):
        return self.policy(batch.obs).square().mean() / self.scale()


class Sent(Scaled):
    """Has it in a network of the critics."""

    group = "critic"


class Kept(Scaled):
    """Moves it in its own learner, too."""

    def after_policy_step(self):
        self.scale().add_(2.0)


class InRounds(Scaled):
    """Reads it once for each round."""

    @dataclass(frozen=True)
    class Options(RolloutOptions):
        """The library's."""

    def targets_of(self, rollouts):
        return {"y": rollouts.reward / self.scale()}

    def policy_loss(self, batch):
        return (self.policy(batch.obs).mean(1) * batch.y).mean()


SAID = (
    "which has its first weights in the actor-learner: what after_critic_step moves, it moves in the critic-"
)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Scaled, f"policy_loss reads the target 'scale', {SAID}"),
        (InRounds, f"targets_of reads the target 'scale', {SAID}"),
        (Sent, ""),
        (Kept, ""),
    ],
)
def test_a_target_that_stays_as_it_was_is_a_remark(kind, said):
    """And what is sent, or moved here, is none; nor is anything in the critic-learner."""
    halves = {
        part: algorithms.make(part, kind, kind.Options(), BOX, "cpu", 1) for part in ("critic", "policy")
    }
    for half in halves.values():
        batch = {"obs": torch.randn(4, 3)}
        if kind.on_policy():
            batch = half.prepare(random_round(BOX, 64, "cpu"))
        for _ in range(2):
            half.update(batch)
    assert not halves["critic"].remarks.lines
    lines = halves["policy"].remarks.lines
    assert [line[: len(said)] for line in lines] == [said][: bool(said)]
    halves["policy"].load_critic(halves["critic"].weights.numpy().copy())
    is_sent = halves["policy"].algorithm.scale().item() == 5.0
    assert is_sent == (not said)
