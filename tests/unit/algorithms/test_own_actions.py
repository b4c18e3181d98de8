"""The actions of a user's own code: their dtypes, gradients inside, and what it raises in a sampler."""

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions
from spreeze_zmq.algorithms.class_policy import ClassPolicy
from spreeze_zmq.algorithms.distributions import Categorical, EpsilonGreedy
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import AlgorithmError, PolicyFailure
from tests.unit.algorithms.test_acting import Modelled, checked, drawn, published


class ByGradient(Modelled):
    """Plans by the gradient of an action."""

    def act(self, obs, greedy):
        """``[N, 1]``, half of the way to the best one."""
        with torch.enable_grad():
            action = torch.ones(len(obs), 1, requires_grad=True)
            (slope,) = torch.autograd.grad((self.policy(obs).sum() * 0.0 + action.square()).sum(), action)
            return action - 0.25 * slope


class InDouble(Modelled):
    """Gives what no replay keeps."""

    def act(self, obs, greedy):
        """``[N, 1]`` float64."""
        return torch.zeros(len(obs), 1, dtype=torch.float64)


class Doubling(torch.nn.Linear):
    """Gives float64."""

    def forward(self, x):
        """Its last operation."""
        return super().forward(x).double()


class DoubleOutputs(Modelled):
    """Its network gives float64."""

    def networks(self):
        """By its only layer."""
        return Networks(super().networks().critic, {"policy": Doubling(3, 2)})


class Choosing(Algorithm):
    """Chooses among two, by values of float64."""

    Options = ReplayOptions
    of = EpsilonGreedy

    def networks(self):
        """The values."""
        return Networks(critic={"q": Doubling(4, 2)}, acting="q")

    def distribution(self):
        """A choice is of int64 whatever the values are."""
        return self.of(self.env, 0.1) if self.of is EpsilonGreedy else self.of(self.env)

    def critic_loss(self, batch):
        """To zero."""
        return self.q(batch.obs).square().mean()


class Failing(Modelled):
    """Raises once it has learned."""

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return self.policy(obs)[:, :1] if self.env_steps == 0 else self.policy(obs[:, :2])


def test_act_is_checked_as_it_acts():
    """Gradients may be enabled inside, actions are of the dtype that the environment takes."""
    checked(ByGradient)
    assert drawn(published(ByGradient)).tolist() == [[0.5]] * 4
    with pytest.raises(AlgorithmError, match=r"act gives torch\.float64, expected torch\.float32"):
        checked(InDouble)
    with pytest.raises(AlgorithmError, match=r"'policy', which acts, gives torch\.float64, expected"):
        checked(DoubleOutputs)


@pytest.mark.parametrize("of", [EpsilonGreedy, Categorical])
def test_choices_may_be_made_of_float64(of, monkeypatch):
    """Samplers send the choice alone."""
    monkeypatch.setattr(Choosing, "of", of)
    checked(Choosing, "CartPole-v1")
    policy = published(Choosing, "critic", "CartPole-v1")
    output = policy.output(np.zeros((4, 4), np.float32), None)
    assert policy.draw(output, np.random.default_rng(0), None, False)[0].dtype == np.int64


def test_an_error_of_act_is_one_line_in_a_sampler_too():
    """With its place; a rare state may have led to it, so that the sampler is started again."""
    checked(Failing)
    policy = published(Failing)
    policy.tell_env_steps(1)
    said = r"test_own_actions:Failing: act: .*test_own_actions\.py:\d+: RuntimeError: mat1 and mat2"
    with pytest.raises(PolicyFailure, match=said) as failed:
        drawn(policy)
    assert failed.value.exit_code == 1


@pytest.mark.parametrize(
    ("kind", "options", "is_inferred"), [(DQN, {"memory_size": 4}, True), (Choosing, {}, False)]
)
def test_what_ships_acts_as_fast_as_torch_can(kind, options, is_inferred):
    """Only a user's own code may enable gradients inside."""
    half = algorithms.make("critic", kind, kind.Options(**options), envs.probe("CartPole-v1", {}), "cpu", 1)
    policy = ClassPolicy(kind, half.description(), half.policy_arrays())
    seen = []
    policy.network.register_forward_pre_hook(lambda *_: seen.append(torch.is_inference_mode_enabled()))
    policy.output(np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32))
    assert seen == [is_inferred]
