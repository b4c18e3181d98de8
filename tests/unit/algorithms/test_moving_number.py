"""The README's way to keep a number that moves: an ``nn.Number`` of the targets, written in place."""

import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Networks
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.learner.at_hand import random_batch_of


class Scaled(SAC):
    """SAC whose rewards are divided by a running mean of their size."""

    def networks(self):
        """SAC's, and the number."""
        shipped = super().networks()
        scale = {"scale": nn.Number(1.0, learned=False)}
        return Networks(critic=shipped.critic, policy=shipped.policy, targets={**shipped.targets, **scale})

    def critic_loss(self, batch):
        """SAC's, of other rewards."""
        self.size = batch.reward.abs().mean()
        return super().critic_loss(batch._replace(reward=batch.reward / self.scale()))

    def after_critic_step(self):
        """Move the targets and the number."""
        super().after_critic_step()
        self.scale().lerp_(self.size, 0.5)


def test_a_number_of_the_targets_moves_and_is_saved():
    """Recorded updates see it, and another half goes on from it."""
    env, options = envs.probe("Pendulum-v1"), Scaled.Options(precision="fp32", hidden_sizes=(8,))
    half = algorithms.make("critic", Scaled, options, env, "cpu", 1)
    batch = random_batch_of(Scaled.critic_fields, env, options, 16, "cpu")
    expected = torch.tensor(1.0)
    for _ in range(10):
        half.update(batch)
        expected = expected.lerp(batch.reward.abs().mean(), 0.5)
    torch.testing.assert_close(half.algorithm.scale(), expected)
    heir = algorithms.make("critic", Scaled, options, env, "cpu", 2)
    heir.load_state_dict(half.state_dict())
    torch.testing.assert_close(heir.algorithm.scale(), expected)
