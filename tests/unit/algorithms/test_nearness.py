"""What keeps PPO's updates near the policy and values of the round, beside the clipped ratio."""

from types import SimpleNamespace

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.nearness import rate_factor
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.learner.at_hand import random_round
from tests.unit.algorithms.shipped import DISCRETE, constant, make
from tests.unit.algorithms.test_ppo import SMALL, Counted, rollouts, targets

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(0.0, 1.5), (0.0049, 1.5), (0.0051, 1.0), (0.01, 1.0), (0.0199, 1.0), (0.0201, 1 / 1.5), (3.0, 1 / 1.5)],
)
def test_the_rate_follows_the_divergence(kl, expected):
    """rsl_rl's rule for a desired 0.01: faster below half of it, slower above twice."""
    assert rate_factor(torch.tensor(kl), 0.01).item() == pytest.approx(expected)


def test_a_divergence_that_is_too_large_slows_the_policy_and_not_the_critic():
    """Ten updates on the same batch: the loss's own factors, multiplied; the value's rate is as stated."""
    options = PPO.Options(**SMALL, learning_rate=1e-3, desired_kl=1e-4)
    policy, critic = (
        algorithms.make(part, PPO, options, DISCRETE, "cpu", 0) for part in ("policy", "critic")
    )
    made = policy.prepare(random_round(DISCRETE, 64, "cpu"))
    output = policy.algorithm.policy(made["obs"])
    made["log_prob"] = policy.algorithm.actions.log_prob(output, made["action"]).detach()
    made["rho"] = torch.ones(64)
    expected, rates = 1e-3, []
    for _ in range(10):
        kl = float(policy.update(made)["kl"])
        expected = min(1e-2, max(1e-5, expected * (1.5 if kl < 5e-5 else 1 / 1.5 if kl > 2e-4 else 1.0)))
        rates.append(expected)
        assert policy.learning_rate == pytest.approx(expected, rel=1e-5)
        critic.update(made)
    assert any(course._steps for course in policy._launch[True]._courses.values()), "it is not recorded"
    assert max(rates) > 1e-3 > min(rates)
    assert (critic.learning_rate, critic.adapts, policy.adapts) == (1e-3, False, True)


def test_a_value_is_held_near_the_one_from_before_the_round():
    """Half of max((v - R)^2, (v0 + clip(v - v0, -c, c) - R)^2), by hand for c = 0.5."""
    ppo = make(PPO, DISCRETE, **SMALL, value_clip_range=0.5)
    ppo.value = Counted()
    obs = torch.tensor([[1.0], [2.0], [3.0], [0.0]]).expand(4, 3)
    batch = SimpleNamespace(
        obs=obs, value=torch.tensor([1.2, 1.0, 1.0, 1.0]), target=torch.tensor([2.0, 3.0, 1.4, 0.5])
    )
    squared = [1.0**2, (1.5 - 3.0) ** 2, (3.0 - 1.4) ** 2, 0.5**2]
    assert ppo.critic_loss(batch).loss.item() == pytest.approx(sum(squared) / 8)
    assert targets(rollouts(), value_clip_range=0.5)["value"] == [1.0, 2.0, 3.0]
    assert "value" not in targets(rollouts())


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        ({"from": 1e-3, "to": 1e-4}, "desired_kl moves the policy's learning_rate, which is a schedule too"),
        ({"policy": {"from": 1e-3, "to": 1e-4}}, "which is a schedule too; leave one of them out"),
        ({"critic": 1e-3, "policy": 0.1}, "keeps the policy's learning_rate from 1e-05 to 0.01, it is 0.1"),
    ],
)
def test_one_rule_moves_a_rate(rate, problem):
    """A schedule of the critic's alone is none of that rule."""
    with pytest.raises(InputError, match=problem):
        PPO.Options(learning_rate=rate, desired_kl=0.01)
    PPO.Options(learning_rate={"critic": {"from": 1e-3, "to": 1e-4}}, desired_kl=0.01)


def test_the_rate_follows_what_the_round_has_moved_and_not_how_stale_it_is():
    """A fresh policy has not moved, though half of the actions are of an older one that would take them half
    as often; once it moves, as far from where the round began as without staleness.
    """
    ppo, obs = make(PPO, DISCRETE, **SMALL, desired_kl=0.01), torch.randn(64, 3)
    with torch.no_grad():
        action, own = ppo.actions.sample(ppo.policy(obs))
    rho = torch.tensor([1.0, 2.0]).repeat(32)
    batch = SimpleNamespace(
        obs=obs, action=action, log_prob=own - rho.log(), advantage=torch.randn(64), rho=rho
    )
    loss = ppo.policy_loss(batch)
    assert loss.metrics["kl"]().item() > 0.1
    assert loss.rate_factor.item() == 1.5
    constant(ppo.policy, 0.0, 0.0, 0.0, 3.0)
    assert ppo.policy_loss(batch).rate_factor.item() == pytest.approx(1 / 1.5)


def test_a_policy_that_trusts_stale_steps_has_not_moved_by_their_staleness():
    """Its rate starts from where the round began, whether V-trace weighs the steps or not."""
    for correct in (True, False):
        options = PPO.Options(**SMALL, desired_kl=1e-4, correct_staleness=correct)
        policy = algorithms.make("policy", PPO, options, DISCRETE, "cpu", 0)
        loss = policy.algorithm.policy_loss(
            SimpleNamespace(**policy.prepare(random_round(DISCRETE, 64, "cpu")))
        )
        assert loss.metrics["kl"]().item() > 0.01
        assert loss.rate_factor.item() == 1.5
