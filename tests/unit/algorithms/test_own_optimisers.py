"""An algorithm's networks have one optimiser, the library's; a rule of one's own is written in its place."""

import copy

import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.base.errors import AlgorithmError
from tests.unit.algorithms.shipped import DISCRETE


class Plain(Algorithm):
    """Learns that all values are 1."""

    Options = ReplayOptions

    def networks(self):
        self.made = nn.mlp([3, 8, 4])
        return Networks(critic={"q": self.made}, acting="q")

    def distribution(self):
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        return (self.q(batch.obs) - 1.0).square().mean()


class InADict(Plain):
    """As for several networks."""

    def networks(self):
        made = super().networks()
        self.opts = {"all": [torch.optim.SGD(self.made.parameters(), lr=0.5)]}
        return made


class AtItsFirstStep(Plain):
    """Where the parameters are on their device."""

    opt = None

    def after_critic_step(self):
        if self.opt is None:
            self.opt = (torch.optim.SGD(self.q.parameters(), lr=0.5),)
        self.opt[0].step()


class Searching(Plain):
    """Holds a tree whose nodes know their parents, and all that it has seen."""

    def networks(self):
        self.root = {"children": []}
        self.root["children"].append({"parent": self.root})
        self.seen = [Unlooked()] * 100_000
        return super().networks()


class Unlooked:
    """Is one of too many to look at."""

    @property
    def __class__(self):
        raise AssertionError("looked at")


class BySign(Plain):
    """Moves by the sign of the gradient."""

    def critic_loss(self, batch):
        loss = super().critic_loss(batch)
        self.gradient = torch.autograd.grad(loss, [*self.q.parameters()], retain_graph=True)
        return loss

    def after_critic_step(self):
        for parameter, gradient in zip(self.q.parameters(), self.gradient, strict=True):
            parameter.sub_(0.01 * gradient.sign())


def half_of(kind, **options):
    """Its only half."""
    return algorithms.make("critic", kind, kind.Options(**options), DISCRETE, "cpu", 1)


@pytest.mark.parametrize(("kind", "place"), [(InADict, r"opts\['all'\]\[0\]"), (AtItsFirstStep, r"opt\[0\]")])
def test_an_optimiser_of_ones_own_is_refused_wherever_it_is_kept(kind, place):
    """The library's has used the gradients when it could step, and nothing would be said."""
    with pytest.raises(AlgorithmError, match=rf"self\.{place} is an optimiser of 'q', which the library"):
        half_of(kind).update({"obs": torch.randn(4, 3)})


def test_what_an_algorithm_keeps_is_looked_through_once_and_not_for_long():
    """Of what is no optimiser nothing is said."""
    half_of(Searching).update({"obs": torch.randn(4, 3)})


def test_a_rule_of_ones_own_takes_the_place_of_the_librarys():
    """With a learning rate of 0, as the README says, also where updates are recorded."""
    half = half_of(BySign, learning_rate={"q": 0.0})
    by_hand = copy.deepcopy(half.algorithm.q).requires_grad_(True)
    parameters = [*by_hand.parameters()]
    for _ in range(8):
        rows = torch.randn(16, 3)
        half.update({"obs": rows})
        gradients = torch.autograd.grad((by_hand(rows) - 1.0).square().mean(), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(0.01 * gradient.sign())
    torch.testing.assert_close([*half.algorithm.q.parameters()], parameters)
