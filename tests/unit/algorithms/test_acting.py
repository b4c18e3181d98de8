"""What acts in a sampler is what was checked: published networks, the described distribution, or ``act``."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions
from spreeze_zmq.algorithms.algorithm import TRANSITION_FIELDS
from spreeze_zmq.algorithms.class_policy import ClassPolicy
from spreeze_zmq.algorithms.distributions import Normal, TanhNormal
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.base.errors import AlgorithmError

OBS = np.zeros((4, 3), np.float32)


def with_actions(obs):
    """Rows of observations and an action, as a model takes them."""
    return torch.cat([obs, obs[:, :1]], 1)


class Modelled(Algorithm):
    """Learns a model in the critic's part, by two names, beside a value that has one."""

    @dataclass(frozen=True)
    class Options(ReplayOptions):
        """Those of a replay."""

    def networks(self):
        """See above; layers that every sampler can evaluate."""
        self.pi = TanhNormal(self.env, -5.0, 2.0)
        self.made = [nn.mlp([4, 8, 3])]
        critic = {"model": self.made[0], "q": nn.mlp([4, 8, 1])}
        return Networks(critic=critic, policy={"policy": nn.mlp([3, 8, 2])})

    def distribution(self):
        """Of the policy's outputs."""
        return self.pi

    def critic_loss(self, batch):
        """Of the next observation and the reward."""
        x = torch.cat([batch.obs, self.pi.unit(batch.action)], 1)
        error = (self.model(x) - batch.next_obs).square().mean()
        return error + (self.q(x).squeeze(1) - batch.reward).square().mean()

    def policy_loss(self, batch):
        """To the middle."""
        return self.policy(batch.obs).square().mean()


class ByModel(Modelled):
    """Plans with the model, by the name that it gave it."""

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return self.made[0](with_actions(obs))[:, :1]


class ByName(Modelled):
    """Plans with a network that only learners set."""

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return self.q(with_actions(obs))


class ByWeight(Modelled):
    """Reads a part of a network."""

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return with_actions(obs) @ self.q[0].weight[:1].T


class Reaching(torch.nn.Module):
    """A policy's network that calls another one."""

    def __init__(self, algorithm):
        super().__init__()
        self.linear, self.algorithm = torch.nn.Linear(3, 2), algorithm

    def forward(self, obs):
        """``[N, 2]``."""
        return self.linear(obs) + self.algorithm.model(with_actions(obs))[:, :2]


class ByForward(Modelled):
    """Acts by such a network."""

    def networks(self):
        """In the policy's part."""
        return Networks(super().networks().critic, {"policy": Reaching(self)})


def checked(kind, env="Pendulum-v1"):
    """Check a class, as before a run."""
    algorithms.check(kind, kind.Options(), envs.probe(env, {}))


def published(kind, part="policy", env="Pendulum-v1"):
    """The policy that a sampler makes of what the learner publishes."""
    half = algorithms.make(part, kind, kind.Options(), envs.probe(env, {}), "cpu", 1)
    return ClassPolicy(kind, half.description(), half.policy_arrays())


def drawn(policy):
    """Its actions."""
    return policy.draw(policy.output(OBS, None), np.random.default_rng(0), None, False)[0]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ByModel, r"act\(\) uses 'model', a network of critic=\.\.\., which samplers do not get: they have"),
        (ByName, r"act\(\) uses 'q', a network of critic="),
        (ByWeight, r"act\(\) uses 'q', a network of critic="),
        (ByForward, r"network 'policy' uses 'model', .* of policy=\.\.\., where 'policy' is; move it there"),
    ],
)
def test_acting_with_networks_that_are_not_published_is_refused(kind, said):
    """It would act with their first random weights, or find none; in a sampler as before the run."""
    with pytest.raises(AlgorithmError, match=said):
        checked(kind)
    with pytest.raises(AlgorithmError, match=said):
        drawn(published(kind))


class Again(Modelled):
    """Makes its networks once, as one that reads a large file."""

    kept = None

    def networks(self):
        """The same ones."""
        made = super().networks()
        type(self).kept = self.kept or made
        return self.kept


def test_networks_are_as_they_were_after_the_check():
    """A learner in the same process trains them."""
    checked(Again)
    half = algorithms.make("critic", Again, Again.Options(), envs.probe("Pendulum-v1", {}), "cpu", 1)
    rows = {"obs": torch.randn(8, 3), "next_obs": torch.randn(8, 3), "action": torch.zeros(8, 1)}
    before = half.weights.clone()
    half.update({**rows, "reward": torch.randn(8)})
    assert not torch.equal(half.weights, before)


class Widening(ByForward):
    """Its distribution depends on a number of the critic's part."""

    def networks(self):
        """With that number, and a network that only its class can evaluate."""
        made = super().networks()
        policy = torch.nn.Sequential(nn.mlp([3, 8, 2]), torch.nn.Softsign())
        return Networks({**made.critic, "floor": nn.Number(-4.0)}, {"policy": policy})

    def distribution(self):
        """Learners have the number and describe it."""
        return TanhNormal(self.env, self.floor().item(), 2.0)


def test_a_distribution_may_read_what_learners_have():
    """Samplers get its description."""
    checked(Widening)
    assert drawn(published(Widening)).shape == (4, 1)


class Sharp(TanhNormal):
    """Acts twice as decidedly."""

    def mode(self, output):
        """See above."""
        return super().mode(2.0 * output)


class Described(Sharp):
    """Says how samplers act."""

    def describe(self):
        """Without saying that mode is another."""
        return super().describe()


class Weighing(TanhNormal):
    """Has a method of its own, and one that is no part of acting."""

    def entropy(self, output):
        """An upper bound."""
        return output.sum(1)

    def drawn(self, output):
        """Of the mean."""
        return self.sample(output)[0]


class Safer(TanhNormal):
    """Other numbers for losses alone, which samplers compute by themselves."""

    def log_prob(self, output, action):
        """Of no more than 5."""
        return super().log_prob(output, action).clamp(max=5.0)

    def noise(self, mean):
        """The same for all."""
        return torch.ones_like(mean)

    def _parts(self, output):
        """As it is."""
        return super()._parts(output)


class Acting(Modelled):
    """Acts by a distribution of another class."""

    of = Sharp

    def networks(self):
        """The same."""
        made = super().networks()
        self.pi = self.of(self.env, -5.0, 2.0)
        return made


class ItsOwn(Acting):
    """Acts as that class does."""

    def act(self, obs, greedy):
        """In the environment's units."""
        return 2.0 * self.pi.mode(self.policy(obs))


class Exploring(PPO):
    """Acts by another distribution than PPO's losses assume."""

    def distribution(self):
        """A narrower one."""
        return Normal(self.env, -1.0, 0.0)


class Narrow(Exploring):
    """All of it with that."""

    def __init__(self, options, env):
        super().__init__(options, env)
        self.actions = Normal(env, -1.0, 0.0)


def test_a_distribution_by_which_samplers_would_not_act_is_refused():
    """They have its description alone, and on-policy losses the densities of what acted."""
    said = r"act by a plain tanh_normal, as Sharp describes itself, not by its mode; write act\(\)"
    with pytest.raises(AlgorithmError, match=said):
        checked(Acting)
    for fine in (Described, Weighing):
        checked(type("Fine", (Acting,), {"of": fine}))
    checked(ItsOwn)
    weighted = type("Weighted", (Acting,), {"of": Safer})
    checked(weighted)
    weighted.critic_fields = (*TRANSITION_FIELDS, "log_prob")
    with pytest.raises(AlgorithmError, match=r"not by its log_prob; .*, or define describe\(\), too, if"):
        checked(weighted)
    said = r"-1\.0.*, but targets_of, which Exploring inherits, takes densities of self\.actions, .*-10"
    with pytest.raises(AlgorithmError, match=said):
        checked(Exploring)
    checked(Narrow)


class Elsewhere(Modelled):
    """What acts is in the part that does not publish."""

    def networks(self):
        """A policy among the critics, and a model among the policies."""
        made = super().networks()
        return Networks({"policy": made.policy["policy"]}, {"model": made.critic["model"]})


def test_what_acts_beside_a_policy_loss_is_in_the_policys_part():
    """Nobody would publish it."""
    said = "'policy' acts and is in the critic part, .*; move it to policy=..., or train 'model' in critic"
    with pytest.raises(AlgorithmError, match=said):
        checked(Elsewhere)
