"""The flat buffers of a learner's networks hold what its losses compute with, whatever these do to them."""

import pytest
import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm, Loss, Networks, ReplayOptions
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.commands.bench.trial import random_batch

pytestmark = pytest.mark.usefixtures("one_thread")

CARTPOLE = envs.probe("CartPole-v1")


class Regression(Algorithm):
    """A network ``q`` that follows fixed targets ``t``."""

    class Options(ReplayOptions):
        """None of its own."""

    def networks(self):
        """Two small ones."""
        return Networks(critic={"q": nn.mlp([4, 8, 2])}, targets={"t": nn.mlp([4, 8, 2])}, acting="q")

    def distribution(self):
        """Of two actions."""
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        """A regression."""
        return Loss((self.q(batch.obs) - self.t(batch.obs) - 1.0).square().mean())

    def after_critic_step(self):
        """Nothing."""


def half_of(kind, **options):
    """Its critic half."""
    return algorithms.make("critic", kind, kind.Options(precision="fp32", **options), CARTPOLE, "cpu", 1)


def flat_of(*modules):
    """Their parameters, one after the other."""
    return torch.cat([each.detach().flatten() for module in modules for each in module.parameters()])


def trained(half, num=5):
    """After some updates on the same batch."""
    batch = random_batch(CARTPOLE, 16)
    for _ in range(num):
        half.update(batch)
    return half


class Shared(Regression):
    """Its encoder is a network, and the first layers of another one."""

    def networks(self):
        """The encoder in two networks, in both groups."""
        layers = [nn.mlp([4, 8]), torch.nn.ReLU()], [nn.mlp([4, 8]), torch.nn.ReLU()]
        whole = [torch.nn.Sequential(*each, torch.nn.Linear(8, 2)) for each in layers]
        return Networks(
            critic={"encoder": layers[0][0], "q": whole[0]},
            targets={"t_encoder": layers[1][0], "t": whole[1]},
            acting="q",
        )

    def after_critic_step(self):
        """The targets follow."""
        nn.polyak(self.t, self.q, 0.5)


def test_a_layer_of_two_networks_is_laid_out_once():
    """The weights that act are those that are trained."""
    half = half_of(Shared)
    first = half.weights.clone()
    trained(half)
    acts = half.policy_arrays()["parameters"]
    assert torch.equal(torch.from_numpy(acts), flat_of(half.algorithm.q))
    assert len(acts) == len(half.weights) == len(first)
    assert (half.weights != first).any()
    assert torch.equal(half.state_dict()["targets"], flat_of(half.algorithm.t_encoder, half.algorithm.t[-1]))


class Scaled(Regression):
    """Its acting network has a single number before its weights."""

    def networks(self):
        """The number is 8, where nothing moves it."""
        q = nn.mlp([4, 8, 2])
        q.scale = torch.nn.Parameter(torch.tensor(8.0))
        return Networks(critic={"q": q, "v": torch.nn.Sequential(nn.Number(8.0), nn.mlp([4, 2]))}, acting="q")

    def critic_loss(self, batch):
        """Without a gradient."""
        return 0.0 * flat_of_graph(self.q, self.v)


def flat_of_graph(*modules):
    """The sum of their parameters."""
    return torch.stack([each.sum() for module in modules for each in module.parameters()]).sum()


@pytest.mark.parametrize("apart", [{}, {"learning_rate": {"critic": 0.1, "v": 0.1}}])
def test_a_number_does_not_decay_wherever_it_stands(apart):
    """Of the acting network, and of another; all weights do."""
    half = half_of(Scaled, **{"learning_rate": 0.1, **apart}, weight_decay=0.5)
    before = half.weights.clone()
    trained(half, 1)
    kept = half.weights == before
    assert kept.sum() == 2
    assert (half.weights[kept] == 8.0).all()
    torch.testing.assert_close(half.weights[~kept], before[~kept] * 0.95)
