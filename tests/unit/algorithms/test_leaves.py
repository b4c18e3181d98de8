"""What the backward pass of a loss may end in: a tensor of this update, and no state that nothing trains."""

import copy
from dataclasses import dataclass

import pytest
import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions
from spreeze_zmq.algorithms.distributions import TanhNormal
from spreeze_zmq.base.errors import AlgorithmError


class Valued(Algorithm):
    """Learns the rewards of observations."""

    @dataclass(frozen=True)
    class Options(ReplayOptions):
        """Those of a replay."""

    def networks(self):
        """A value, and a policy that the same loss trains."""
        self.pi = TanhNormal(self.env, -5.0, 2.0)
        return Networks(critic={"value": nn.mlp([3, 16, 1]), "policy": nn.mlp([3, 2])})

    def distribution(self):
        """Of the two outputs."""
        return self.pi

    def error(self, batch):
        """Its mean square, and what trains the policy."""
        error = self.value(batch.obs).squeeze(1) - batch.reward
        return error.square().mean() + self.policy(batch.obs).square().mean()

    def critic_loss(self, batch):
        """See above."""
        return self.error(batch)


class Penalised(Valued):
    """The value changes by 1 along observations (Gulrajani et al. 2017, 1704.00028)."""

    def input_of(self, batch):
        """A tensor of this update."""
        return (batch.obs * 1.0).requires_grad_()

    def critic_loss(self, batch):
        """With a term on the gradient itself."""
        self.last = x = self.input_of(batch)
        (gradient,) = torch.autograd.grad(self.value(x).sum(), x, create_graph=True)
        return self.error(batch) + (gradient.norm(dim=1) - 1.0).square().mean()


class OfTheBatch(Penalised):
    """Asks for the gradient of a batch's own field."""

    def input_of(self, batch):
        """As in many listings."""
        return batch.obs.requires_grad_()


class OnlyLater(Valued):
    """Makes its state in the first update."""

    def critic_loss(self, batch):
        """A bias, in a list."""
        self.biases = vars(self).get("biases", [torch.zeros((), requires_grad=True)])
        return self.error(batch) + self.biases[0].square()


class FromTheBeginning(Valued):
    """Has a tensor beside its networks."""

    def networks(self):
        """The same."""
        self.bias = torch.zeros((), requires_grad=True)
        return super().networks()

    def critic_loss(self, batch):
        """With it."""
        return self.error(batch) + self.bias.square()


class Anchored(Valued):
    """From the second update on stays near to the policy that it was after the first one."""

    def critic_loss(self, batch):
        """Gradients flow through the older one, too, and are nobody's."""
        loss = self.error(batch)
        if "old" in vars(self):
            loss = loss + (self.policy(batch.obs) - self.old(batch.obs)).square().mean()
        return loss

    def after_critic_step(self):
        """Keeps it."""
        if "old" not in vars(self):
            self.old = copy.deepcopy(self.policy).requires_grad_(True)


def half_of(kind):
    """The critic's half, in Pendulum."""
    return algorithms.make("critic", kind, kind.Options(), envs.probe("Pendulum-v1", {}), "cpu", 1)


def batches(num, size=16):
    """Random ones, drawn into the same tensors as a replay draws them."""
    source = torch.Generator().manual_seed(0)
    batch = {"obs": torch.empty(size, 3), "reward": torch.empty(size)}
    for _ in range(num):
        for field in batch.values():
            field.normal_(generator=source)
        yield batch


@pytest.mark.parametrize("kind", [Penalised, OfTheBatch])
def test_a_penalty_on_gradients_trains_as_in_plain_torch(kind):
    """Its input is a leaf of the graph that each update makes; recorded or not."""
    recorded, plain = half_of(kind), half_of(kind)
    plain.leave_to_torch()
    first = recorded.weights.clone()
    for half in (recorded, plain):
        for batch in batches(20):
            half.update(batch)
    assert recorded.remarks.lines == []
    assert not torch.allclose(recorded.weights, first, atol=1e-3)
    torch.testing.assert_close(recorded.weights, plain.weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "update", "said"),
    [
        (FromTheBeginning, 1, r"critic_loss depends on self\.bias, which nothing trains"),
        (OnlyLater, 2, r"critic_loss depends on a tensor of shape \(\), which nothing trains"),
    ],
)
def test_a_tensor_that_stays_from_update_to_update_is_refused(kind, update, said):
    """It is state, and would keep its first number."""
    half = half_of(kind)
    *first, last = batches(update)
    for batch in first:
        half.update(batch)
    with pytest.raises(AlgorithmError, match=said):
        half.update(last)


def test_a_network_that_comes_with_the_first_update_is_a_remark():
    """It is meant to stay as it is; its gradients only take time."""
    half = half_of(Anchored)
    for batch in batches(4):
        half.update(batch)
    (line,) = half.remarks.lines
    assert line.startswith("Anchored: critic_loss depends on self.old, which nothing trains: ")
    assert line.endswith("or detach() it")
