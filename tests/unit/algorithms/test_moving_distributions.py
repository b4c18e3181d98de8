"""A distribution may have a number that moves along the run: an option that is a schedule, or that is set."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions, option
from spreeze_zmq.algorithms.distributions import Deterministic, EpsilonGreedy, Normal, TanhNormal
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message, decode, encode
from tests.unit.algorithms.shipped import BOX, DISCRETE

FALLING = {"from": -0.5, "to": -1.5, "over": {"env_steps": 1000}}
#: Each distribution with such a number, its environment, what it is there, and its name in a description.
CASES = {
    "epsilon": (DISCRETE, lambda env, x: EpsilonGreedy(env, -x / 2), "epsilon", lambda x: -x / 2),
    "noise": (BOX, lambda env, x: Deterministic(env, 0.0, -x), "noise_max", lambda x: -x),
    "tanh": (BOX, lambda env, x: TanhNormal(env, x, 2.0), "log_std_min", lambda x: x),
    "normal": (BOX, lambda env, x: Normal(env, x, 2.0), "log_std_min", lambda x: x),
}


class Moving(Algorithm):
    """Acts by a distribution of which its option ``low`` is a number."""

    made = None

    @dataclass(frozen=True)
    class Options(ReplayOptions):
        """With that number."""

        low: float = option(-0.5, "a number of the distribution", schedule=True)

    def networks(self):
        outputs = self.distribution().num_outputs
        return Networks(critic={"q": nn.mlp([3, 8, outputs])}, acting="q")

    def distribution(self):
        return type(self).made(self.env, self.options.low)

    def critic_loss(self, batch):
        return self.q(batch.obs).square().mean()


@pytest.mark.parametrize("how", ["a schedule", "set"])
@pytest.mark.parametrize("case", CASES)
def test_samplers_get_the_number_as_it_is(case, how, monkeypatch):
    """It is a tensor in a learner, and a message has none in its fields."""
    env, made, name, expected = CASES[case]
    monkeypatch.setattr(Moving, "made", made)
    options = algorithms.options_from(Moving.Options, {"low": FALLING} if how == "a schedule" else {})
    algorithms.check(Moving, options, env)
    half = algorithms.make("critic", Moving, options, env, "cpu", 1)
    if how == "set":
        half.turn("low", -1.0)
    half.follow({"env_steps": 500})
    fields = {"version": 1, "critic_updates": 1, "actor_updates": 1, "extras": {}}
    fields["description"] = half.description()
    sent = decode(encode(Message("policy", fields, half.policy_arrays())))
    assert sent.fields["description"]["distribution"][name] == expected(-1.0)
    assert isinstance(Policy.from_message(sent.fields, sent.arrays), Policy)


def with_slope(found, output):
    """What was found, and its gradient by the output."""
    return found, torch.autograd.grad(found.sum(), output, retain_graph=True)[0]


@pytest.mark.parametrize("kind", [TanhNormal, Normal])
def test_losses_have_the_density_of_limits_that_move(kind):
    """A native function takes numbers: of a tensor it would get the address. So it is for gradients."""
    output, low, high = torch.randn(5, 4, requires_grad=True), torch.tensor(-1.5), torch.tensor(0.5)
    moving, fixed = kind(BOX, low, 0.5), kind(BOX, -1.5, 0.5)
    action = torch.rand(5, *BOX.action_shape)
    for found in (moving, kind(BOX, -1.5, high), kind(BOX, low, high)):
        torch.testing.assert_close(
            *(with_slope(each.log_prob(output, action), output) for each in (found, fixed))
        )
        drawn = []
        for each in (found, fixed):
            torch.manual_seed(1)
            drawn.append([with_slope(one, output) for one in each.sample(output)])
        torch.testing.assert_close(*drawn)


def test_values_have_limits_that_move():
    """So it is for the returns of atoms, and their projection."""
    logits, limits = torch.randn(5, 6), (torch.tensor(-2.0), torch.tensor(3.0))
    torch.testing.assert_close(nn.expectation(logits, *limits), nn.expectation(logits, -2.0, 3.0))
    given = logits.softmax(1), torch.randn(5), torch.full((5,), 0.9)
    torch.testing.assert_close(nn.project(*given, *limits), nn.project(*given, -2.0, 3.0))


class Operations(TorchDispatchMode):
    """Notes the names of torch's operations inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run one and note it."""
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def test_no_value_of_a_limit_that_moves_is_read_on_the_host():
    """A GPU records no graph of that, and a linspace of tensors reads both of its ends."""
    logits, limits = torch.randn(5, 6), (torch.tensor(-2.0), torch.tensor(3.0))
    with Operations() as called:
        nn.expectation(logits, *limits)
        nn.project(logits.softmax(1), torch.randn(5), torch.full((5,), 0.9), *limits)
    assert "aten.linspace.default" in called.names
    reading = {"aten._local_scalar_dense.default", "aten.linspace.Tensor_Tensor"}
    assert not called.names & reading


def test_a_distribution_that_samplers_refuse_is_refused_first(monkeypatch):
    """Before anything starts, and not with the first policy."""
    monkeypatch.setattr(Moving, "made", lambda env, low: EpsilonGreedy(env, np.inf))
    with pytest.raises(AlgorithmError, match=r"distribution, as samplers get it: .*epsilon is inf"):
        algorithms.check(Moving, Moving.Options(), DISCRETE)
