"""A step follows the gradient of the loss that was returned, whatever it does to gradients and tensors."""

import copy
from dataclasses import replace

import pytest
import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms.flat_networks import FlatNetworks
from tests.unit.algorithms.test_flat_networks import (
    Regression,
    by_assigned_state,
    by_layers,
    flat_of,
    half_of,
    how,  # noqa: F401
    in_place,
    trained,
)

pytestmark = pytest.mark.usefixtures("one_thread", "how")


class Numbered(Regression):
    """Has a number that its loss does not reach."""

    def networks(self):
        """It is trained."""
        networks = super().networks()
        return replace(networks, critic={**networks.critic, "number": nn.Number(1.0)})


class Measured(Numbered):
    """Measures another gradient first, and clears it."""

    def critic_loss(self, batch):
        """Of the number, too."""
        (self.q(batch.obs).exp().mean() + self.number().square()).backward()
        self.q.zero_grad()
        self.number.zero_grad()
        return super().critic_loss(batch)


def test_a_gradient_that_a_loss_has_cleared_is_not_trained_on():
    """The same bits as without it; nothing moves what the loss does not reach."""
    half = trained(half_of(Measured, learning_rate=1e-2), 12)
    assert torch.equal(half.weights, trained(half_of(Numbered, learning_rate=1e-2), 12).weights)
    assert half.algorithm.number() == 1.0


def test_a_sparse_gradient_is_gathered():
    """As an embedding has it after its gradients were cleared."""
    embedding = torch.nn.Embedding(2, 2, sparse=True)
    networks = FlatNetworks({"embedding": embedding}, "embedding", trained=True)
    embedding.zero_grad()
    embedding(torch.tensor([1, 1])).sum().backward()
    networks.gather_gradient()
    assert networks.gradient.tolist() == [0.0, 0.0, 2.0, 2.0]


class Within(Regression):
    """Moves its targets and bounds its network before it computes its loss; as in ``how``."""

    how = staticmethod(lambda algorithm: None)

    def critic_loss(self, batch):
        """Of what has come."""
        self.how(self)
        return super().critic_loss(batch)


def by_networks(algorithm):
    """New networks, for the same."""
    for name in ("q", "t"):
        setattr(algorithm, name, copy.deepcopy(getattr(algorithm, name)))
    in_place(algorithm)


@pytest.mark.parametrize("how_moved", [by_assigned_state, by_layers, by_networks])
def test_tensors_that_a_loss_assigns_are_trained(how_moved):
    """To the bits of the same in place, from the first update on."""
    weights = []
    for each in (in_place, how_moved):
        half = half_of(type("Moved", (Within,), {"how": staticmethod(each)}), learning_rate=1e-2)
        weights.append([trained(half, num).weights.clone() for num in (1, 1, 12)])
        assert torch.equal(half.weights, flat_of(half.algorithm.q))
        assert half.remarks.lines == []
    assert all(map(torch.equal, *weights))


class Square(Regression):
    """Two layers of one size, without biases."""

    def networks(self):
        """The first acts on the observation, the second on its output."""
        layers = [torch.nn.Linear(4, 4, bias=False), torch.nn.Tanh(), torch.nn.Linear(4, 4, bias=False)]
        q = torch.nn.Sequential(*layers)
        return replace(super().networks(), critic={"q": q, "head": nn.mlp([4, 2])})

    def critic_loss(self, batch):
        """A regression."""
        error = self.head(self.q(batch.obs)) - self.t(batch.obs) - 1.0
        return error.square().mean()


class Exchanged(Square):
    """Its layers change places before each loss."""

    def critic_loss(self, batch):
        """Of the layers as they are then."""
        self.q[0], self.q[2] = self.q[2], self.q[0]
        return super().critic_loss(batch)


class Turned(Square):
    """A network of its layers in the other order comes before each loss."""

    def critic_loss(self, batch):
        """Of that network."""
        self.q = torch.nn.Sequential(*reversed(self.q))
        return super().critic_loss(batch)


class TurnedAgain(Square):
    """As before, of layers one of which is a copy."""

    def critic_loss(self, batch):
        """Of that network."""
        self.q = torch.nn.Sequential(copy.deepcopy(self.q[2]), self.q[1], self.q[0])
        return super().critic_loss(batch)


@pytest.mark.parametrize("kind", [Exchanged, Turned, TurnedAgain])
def test_layers_that_change_places_take_their_gradients_along(kind):
    """The first update is that of the layers in their new places."""
    ours, expected = half_of(kind), half_of(Square)
    state = expected.state_dict()
    first, second, rest = state["own"].split([16, 16, 10])
    expected.load_state_dict({**state, "own": torch.cat((second, first, rest))})
    assert torch.equal(trained(ours, 1).weights, trained(expected, 1).weights)


class Behind(torch.nn.Module):
    """The layers of a network under names of their own, the last one first."""

    def __init__(self, q):
        super().__init__()
        self.last, self.first = q[2], q[0]

    def forward(self, rows):
        """As the network's."""
        return self.last(torch.tanh(self.first(rows)))


class Wrapped(Square):
    """Its network has a wrapper from the first loss on."""

    def critic_loss(self, batch):
        """Through that."""
        self.q = self.q if isinstance(self.q, Behind) else Behind(self.q)
        return super().critic_loss(batch)


def test_a_wrapper_of_the_same_parameters_stays_whatever_it_calls_them():
    """It trains the network that it wraps."""
    ours, expected = half_of(Wrapped), half_of(Square)
    assert torch.allclose(trained(ours, 3).weights, trained(expected, 3).weights, atol=1e-6)
    assert isinstance(ours.algorithm.q, Behind)


def networks_exchanged(algorithm):
    """The whole ones."""
    algorithm.q, algorithm.t = algorithm.t, algorithm.q


def layers_exchanged(algorithm):
    """Each layer with its like."""
    for place in range(len(algorithm.q)):
        algorithm.q[place], algorithm.t[place] = algorithm.t[place], algorithm.q[place]


@pytest.mark.parametrize("exchanged", [networks_exchanged, layers_exchanged])
def test_networks_that_change_places_take_their_weights_along(exchanged):
    """Both of them, and the trained one is trained on."""
    kind = type("Moved", (Regression,), {"after_critic_step": exchanged})
    ours, other = trained(half_of(kind), 1), trained(half_of(Regression), 1)
    assert torch.equal(ours.weights, flat_of(other.algorithm.t))
    assert torch.equal(flat_of(ours.algorithm.t), other.weights)
    assert (trained(ours, 1).state_dict()["targets"] != flat_of(other.algorithm.t)).any()
