"""What an algorithm of one's own draws from ``random`` and ``np.random`` is repeated, too."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.learner.own_draws import go_on_drawing, kept_draws, prepared
from spreeze_zmq.plan import topology


class Drawing(Algorithm):
    """Its loss, and its first weights, draw from both."""

    Options = ReplayOptions

    def networks(self):
        q = nn.mlp([4, 8, 2])
        torch.nn.init.constant_(q[0].bias, random.random() + np.random.rand())
        return Networks(critic={"q": q}, acting="q")

    def distribution(self):
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        return (self.q(batch.obs) - random.gauss(0, 1) - np.random.randn()).square().mean()


def updated(half, times):
    """The weights after so many updates."""
    for _ in range(times):
        half.update({"obs": torch.ones(4, 4)})
    return half.weights.clone()


@pytest.fixture
def shared_draws_as_before():
    """What other tests draw goes on from where it was."""
    kept = kept_draws()
    yield
    go_on_drawing(kept)


@pytest.mark.usefixtures("shared_draws_as_before")
def test_the_same_seed_gives_the_same_bits_and_a_checkpoint_goes_on_with_them():
    """Whatever has been drawn before in the process."""
    plan = topology.load({"run": {"env": "CartPole-v1", "algorithm": f"{__name__}:Drawing", "seed": 7}})
    component = SimpleNamespace(plan=plan, environment=plan.environment, role="critic_learner")
    whole = []
    for _ in range(2):
        half = prepared(component, "cpu")[0]
        updated(half, 2)
        kept, state = kept_draws(), half.state_dict()
        whole.append(updated(half, 3))
        random.random()
    assert torch.equal(*whole)
    half.load_state_dict(state)
    go_on_drawing(kept)
    assert torch.equal(updated(half, 3), whole[0])
