"""What a half saves and publishes is what it trains, and goes into the same networks alone."""

import copy
from dataclasses import replace

import pytest
import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms import Networks
from spreeze_zmq.algorithms.class_policy import ClassPolicy
from spreeze_zmq.base.errors import AlgorithmError, CheckpointError
from tests.unit.algorithms.test_flat_networks import Regression, half_of, trained

pytestmark = pytest.mark.usefixtures("one_thread")


class Counting(torch.nn.Module):
    """Two linear layers, the number of rows that they have seen, and whether these were many."""

    def __init__(self):
        super().__init__()
        self.layers = nn.mlp([4, 4])
        self.head = nn.mlp([4, 2])
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))
        self.register_buffer("many", torch.zeros((), dtype=torch.bool))
        self.norm = torch.nn.BatchNorm1d(4, momentum=None)

    def forward(self, x):
        """Counts, in memory of its own and in another one."""
        self.rows.add_(len(x))
        self.many = self.rows > 100
        return self.head(self.norm(self.layers(x)))


class Counted(Regression):
    """Trains a network that counts."""

    def networks(self):
        """And its first weights."""
        network = Counting()
        return Networks(critic={"q": network}, targets={"t": copy.deepcopy(network)}, acting="q")


def test_buffers_that_are_no_floats_are_saved():
    """A half that goes on from the state counts on, and gets the weights of the one that made it."""
    ours, other = half_of(Counted), half_of(Counted)
    trained(ours, 7)
    said = "\n".join(ours.remarks.lines)
    assert "self.q.rows is saved but not published, it is torch.int64" in said
    assert "num_batches_tracked" not in said
    state = ours.state_dict()
    other.load_state_dict(state)
    assert (other.algorithm.q.rows, other.algorithm.q.many) == (7 * 16, True)
    assert other.algorithm.q.norm.num_batches_tracked == 7
    assert torch.equal(trained(ours).weights, trained(other).weights)
    assert state["beside"]["q.rows"] == 7 * 16
    assert state["own"].isfinite().all()


class Keeping(torch.nn.Sequential):
    """Has buffers that are no state; what one of them holds changes its form."""

    def __init__(self):
        super().__init__(*nn.mlp([4, 8, 2]))
        for name in ("features", "signs", "last", "scale"):
            self.register_buffer(name, torch.ones(1), persistent=False)

    def forward(self, x):
        """Of as many rows as there are."""
        self.features = x.detach() + 1.0
        self.signs.data = self.features > 1.0
        self.last = None
        return super().forward(x) * self.scale


class Kept(Regression):
    """Trains a network that keeps its features."""

    def networks(self):
        """And its first weights."""
        return Networks(critic={"q": Keeping()}, targets={"t": Keeping()}, acting="q")


def test_a_buffer_that_is_no_state_may_change_its_form():
    """It stays as a forward pass left it; one that does not change is published as before."""
    half = trained(half_of(Kept), 6)
    q = half.algorithm.q
    assert (q.features.shape, q.signs.dtype, q.last) == ((16, 4), torch.bool, None)
    published = ClassPolicy(Kept, half.description(), half.policy_arrays())
    obs = torch.randn(5, 4)
    torch.testing.assert_close(torch.from_numpy(published.output(obs.numpy(), None)), q(obs))


class Pair(Regression):
    """Two networks of one size, in an order."""

    order = ("q", "v")

    def networks(self):
        """The first one acts, whichever stands first."""
        made = {name: nn.mlp([4, 8, 2]) for name in self.order}
        return Networks(critic=made, targets={"t": nn.mlp([4, 8, 2])}, acting="q")


class Renamed(Pair):
    """The second is another one."""

    order = ("q", "w")


def test_networks_that_have_changed_take_no_state():
    """In equal sizes; a state of an earlier release names no tensors."""
    ours, other = trained(half_of(Pair)), half_of(Renamed)
    state = ours.state_dict()
    before = other.state_dict()
    with pytest.raises(CheckpointError, match=r"trained ones are packed as layout '\w+', expected '\w+' \(q"):
        other.load_state_dict(state)
    assert torch.equal(other.weights, before["own"])
    for name in ("layouts", "beside"):
        del state[name]
    other.load_state_dict(state)
    assert torch.equal(other.weights, ours.weights)


class Weighed(Regression):
    """Gives the logarithm of errors of either sign as priorities."""

    def critic_loss(self, batch):
        """A loss that is finite."""
        loss = super().critic_loss(batch)
        return loss._replace(priorities=(self.q(batch.obs) - self.t(batch.obs)).sum(1).log())


def test_priorities_that_are_no_numbers_are_named():
    """Where they are used; they would spoil every draw."""
    half = trained(half_of(Weighed), 3)
    with pytest.raises(AlgorithmError, match="critic_loss gives priorities with NaN or infinity at update 3"):
        half.priorities()


class Negative(torch.nn.Sequential):
    """Computes more than its layers."""

    def forward(self, x):
        """Of the other sign."""
        return -super().forward(x)


class Negated(Regression):
    """Acts by a network that is more than its layers."""

    def networks(self):
        """A subclass of what every reader could evaluate."""
        return replace(super().networks(), critic={"q": Negative(*nn.mlp([4, 8, 2]))})


def test_a_published_policy_computes_what_the_learner_trains():
    """By its class, where it is more than its layers."""
    half = trained(half_of(Negated))
    published = ClassPolicy(Negated, half.description(), half.policy_arrays())
    obs = torch.randn(5, 4)
    torch.testing.assert_close(torch.from_numpy(published.output(obs.numpy(), None)), half.algorithm.q(obs))
