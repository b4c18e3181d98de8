"""PPO with V-trace: targets from whole rollouts, both losses by hand, and four kinds of actions."""

import math
from types import SimpleNamespace

import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.base.errors import InvalidEnvironment
from tests.unit.algorithms.shipped import (
    BOX,
    DISCRETE,
    PIXELS,
    SEVERAL,
    UNBOUNDED,
    constant,
    make,
    parameters,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_sizes": (8, 6)}


class Counted(torch.nn.Module):
    """A value network: an observation is worth its first number."""

    def forward(self, x):
        """``[B, 1]``."""
        return x[:, :1]


def rollouts(env=DISCRETE, values=(1.0, 2.0, 3.0, 4.0), num_envs=1):
    """Three steps whose observations are worth ``values``, reward 1 each, without an end."""
    obs = torch.zeros(4, num_envs, 3)
    obs[:, :, 0] = torch.tensor(values).unsqueeze(1)
    action = torch.zeros(3, num_envs, *env.action_shape, dtype=torch.int64)
    return SimpleNamespace(
        obs=obs,
        action=action if env.action_kind != "box" else action.float(),
        log_prob=torch.full((3, num_envs), math.log(0.25)),
        reward=torch.ones(3, num_envs),
        terminated=torch.zeros(3, num_envs, dtype=torch.bool),
        truncated=torch.zeros(3, num_envs, dtype=torch.bool),
        final_obs=torch.zeros(0, 3),
        final_index=torch.zeros(0, 2, dtype=torch.int32),
    )


def end(made, step, truncated, worth):
    """End the episode of environment 0 at ``step``, in an observation worth so much."""
    (made.truncated if truncated else made.terminated)[step, 0] = True
    made.final_obs = torch.tensor([[worth, 0.0, 0.0]])
    made.final_index = torch.tensor([[step, 0]], dtype=torch.int32)
    return made


def targets(made, **options):
    """Of PPO whose policy chooses among four alike and whose values are counted."""
    ppo = make(PPO, DISCRETE, **{**SMALL, "gamma": 0.5, "gae_lambda": 0.5, **options})
    constant(ppo.policy, 0.0, 0.0, 0.0, 0.0)
    ppo.value = Counted()
    with torch.no_grad():
        return {name: value[:, 0].tolist() for name, value in ppo.targets_of(made).items()}


@pytest.mark.parametrize("correct", [True, False])
def test_rollouts_of_the_current_policy_give_generalised_advantages(correct):
    """Values 1, 2, 3 and then 4: differences 1, 0.5 and 0; V-trace or not."""
    found = targets(rollouts(), correct_staleness=correct)
    assert found["advantage"] == pytest.approx([1.125, 0.5, 0.0])
    assert found["target"] == pytest.approx([2.125, 2.5, 3.0])
    assert found["rho"] == pytest.approx([1.0] * 3)


def test_a_truncated_episode_is_worth_its_true_last_observation():
    """10 instead of the next episode's first one; and the step before hears of it, not of the one after."""
    found = targets(end(rollouts(), 1, truncated=True, worth=10.0))
    assert found["advantage"] == pytest.approx([2.0, 4.0, 0.0])


def test_a_terminated_episode_is_worth_nothing_more():
    """Whatever its last observation would be worth."""
    found = targets(end(rollouts(), 1, truncated=False, worth=10.0))
    assert found["advantage"] == pytest.approx([0.75, -1.0, 0.0])


def test_environments_do_not_mix():
    """Two of them, one of which ends: the other is as if alone."""
    alone, both = targets(rollouts()), rollouts(num_envs=2)
    both = end(both, 1, truncated=True, worth=10.0)
    ppo = make(PPO, DISCRETE, **SMALL, gamma=0.5, gae_lambda=0.5)
    constant(ppo.policy, 0.0, 0.0, 0.0, 0.0)
    ppo.value = Counted()
    with torch.no_grad():
        found = ppo.targets_of(both)
    assert found["advantage"][:, 1].tolist() == pytest.approx(alone["advantage"])
    assert found["advantage"][:, 0].tolist() == pytest.approx([2.0, 4.0, 0.0])


def test_an_older_policys_unlikely_action_is_weighed_down_by_vtrace():
    """It took the second action with certainty, we with 1/4: its difference counts a quarter before it."""
    made = rollouts()
    made.log_prob[1] = 0.0
    found = targets(made, gae_lambda=1.0)
    assert found["rho"] == pytest.approx([1.0, 0.25, 1.0])
    # Targets: 2 + 0.25 * 0.5, and 1 + 1 + 0.5 * 0.125.
    assert found["target"] == pytest.approx([2.0625, 2.125, 3.0])
    assert targets(made, gae_lambda=1.0, correct_staleness=False)["target"] == pytest.approx([2.25, 2.5, 3.0])


def batch_of(log_ratio, advantage, probability=0.25):
    """Steps of action 0, which our policy takes with ``probability``, and others did less or more."""
    log_prob = math.log(probability) - torch.tensor(log_ratio)
    size = len(log_prob)
    return SimpleNamespace(
        obs=torch.randn(size, 3, generator=torch.Generator().manual_seed(0)),
        action=torch.zeros(size, dtype=torch.int64),
        log_prob=log_prob,
        advantage=torch.tensor(advantage),
        target=torch.tensor(advantage),
        rho=torch.ones(size),
    )


def test_the_surrogate_is_clipped_where_it_would_pay():
    """Ratios 2, 2, 0.5 and 0.5 with advantages of both signs: 1.2, -2, 0.5 and -0.8."""
    ppo = make(PPO, DISCRETE, **SMALL, normalize_advantages=False)
    constant(ppo.policy, 0.0, 0.0, 0.0, 0.0)
    double = math.log(2.0)
    loss = ppo.policy_loss(batch_of([double, double, -double, -double], [1.0, -1.0, 1.0, -1.0]))
    assert loss.loss.item() == pytest.approx(-(1.2 - 2.0 + 0.5 - 0.8) / 4, rel=1e-5)
    assert loss.metrics["clipped"]().item() == 1.0
    assert loss.metrics["entropy"]().item() == pytest.approx(math.log(4.0))
    by_hand = ((2 - 1 - double) + (0.5 - 1 + double)) / 2
    assert loss.metrics["kl"]().item() == pytest.approx(by_hand, rel=1e-5)


def test_no_gradient_flows_from_a_clipped_step():
    """Too far in the paid direction; back from the other direction it does."""
    for advantage, flows in ((1.0, False), (-1.0, True)):
        ppo = make(PPO, DISCRETE, **SMALL, normalize_advantages=False)
        constant(ppo.policy, 0.0, 0.0, 0.0, 0.0)
        ppo.policy_loss(batch_of([math.log(2.0)], [advantage])).loss.backward()
        assert bool(parameters(ppo.policy)[-1].grad.abs().sum() > 0) == flows


def test_advantages_are_normalised_in_the_batch():
    """Shifted and scaled ones give the same loss."""
    ppo = make(PPO, DISCRETE, **SMALL)
    plain, moved = ([0.5, -1.0, 2.0], [105.0, 90.0, 120.0])
    losses = [ppo.policy_loss(batch_of([0.1, -0.1, 0.05], each)).loss.item() for each in (plain, moved)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_entropy_is_rewarded():
    """By its coefficient: log 4 of four alike."""
    bare, rewarded = (make(PPO, DISCRETE, **SMALL, entropy_coefficient=c) for c in (0.0, 0.1))
    losses = []
    for ppo in (bare, rewarded):
        constant(ppo.policy, 0.0, 0.0, 0.0, 0.0)
        losses.append(ppo.policy_loss(batch_of([0.0], [1.0])).loss.item())
    assert losses[0] - losses[1] == pytest.approx(0.1 * math.log(4.0), rel=1e-5)


def test_the_critic_loss_is_half_the_squared_error():
    """Values of 2 for targets of 1 and 5: (1 + 9) / 4; a constant explains nothing."""
    ppo = make(PPO, DISCRETE, **SMALL)
    constant(ppo.value, 2.0)
    loss = ppo.critic_loss(batch_of([0.0, 0.0], [1.0, 5.0]))
    assert loss.loss.item() == pytest.approx(2.5)
    assert loss.metrics["explained_variance"]().item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("size", "targets", "explained"), [(1e-6, [1.0, 5.0], 0.0), (1.0, [3.0, 3.0], 0.0)])
def test_what_is_explained_has_no_unit(size, targets, explained):
    """Neither small targets nor targets that are all alike are explained by a constant."""
    ppo = make(PPO, DISCRETE, **SMALL)
    constant(ppo.value, 2.0 * size)
    found = ppo.critic_loss(batch_of([0.0, 0.0], [size * each for each in targets])).metrics
    assert found["explained_variance"]().item() == pytest.approx(explained, abs=1e-4)


def test_a_batch_of_one_row_has_a_gradient():
    """One advantage has no deviation."""
    ppo = make(PPO, DISCRETE, **SMALL)
    ppo.policy_loss(batch_of([0.0], [1.0])).loss.backward()
    assert any(each.grad.abs().max() > 0.0 for each in ppo.policy.parameters())


@pytest.mark.parametrize("env", [BOX, UNBOUNDED, DISCRETE, SEVERAL], ids=["box", "free", "one", "several"])
def test_each_loss_moves_its_own_networks(env):
    """In each kind of action space; a fresh policy's ratio is 1 for what it has drawn itself."""
    ppo = make(PPO, env, **SMALL, entropy_coefficient=0.01)
    PPO.check(env, ppo.options)
    obs = torch.randn(20, 3)
    with torch.no_grad():
        drawn, log_prob = ppo.actions.sample(ppo.policy(obs))
    action = drawn
    if env is BOX:  # samples are in [-1, 1], rollouts hold the environment's units
        action = drawn * torch.tensor([1.0, 3.0]) + torch.tensor([0.0, 1.0])
    batch = SimpleNamespace(
        obs=obs, action=action, log_prob=log_prob, advantage=torch.randn(20), target=torch.randn(20)
    )
    batch.rho = torch.ones(20)
    loss = ppo.policy_loss(batch)
    assert loss.metrics["kl"]().item() == pytest.approx(0.0, abs=1e-5)
    loss.loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters(ppo.policy))
    assert all(p.grad is None for p in parameters(ppo.value))
    ppo.policy.zero_grad(set_to_none=True)
    ppo.critic_loss(batch).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters(ppo.value))
    assert all(p.grad is None for p in parameters(ppo.policy))


def test_a_fresh_policy_explores_around_the_middle():
    """Mean almost 0, the stated log standard deviation, in every state."""
    ppo = make(PPO, BOX, initial_log_std=-1.25)
    with torch.no_grad():
        output = ppo.policy(torch.randn(64, 3))
    assert output[:, :2].abs().max() < 0.05
    assert (output[:, 2:] == -1.25).all()


def test_it_finds_the_better_arm():
    """Four arms of reward 0, 1, 2 and 3, one step an episode: after 60 rounds the last is taken."""
    ppo = make(PPO, DISCRETE, **SMALL)
    adam = torch.optim.Adam(parameters(ppo.policy, ppo.value), lr=3e-3)
    for _ in range(60):
        obs = torch.randn(2, 64, 3)
        with torch.no_grad():
            action, log_prob = ppo.actions.sample(ppo.policy(obs[0]))
        ends = torch.ones(1, 64, dtype=torch.bool)
        made = SimpleNamespace(
            obs=obs,
            action=action.unsqueeze(0),
            log_prob=log_prob.unsqueeze(0),
            reward=action.unsqueeze(0).float(),
            terminated=ends,
            truncated=~ends,
            final_obs=obs[1],
            final_index=torch.stack((torch.zeros(64), torch.arange(64.0)), 1).int(),
        )
        with torch.no_grad():
            extra = {name: value.flatten(0, 1) for name, value in ppo.targets_of(made).items()}
        batch = SimpleNamespace(obs=obs[0], action=action, log_prob=log_prob, **extra)
        for _ in range(4):
            adam.zero_grad()
            (ppo.policy_loss(batch).loss + ppo.critic_loss(batch).loss).backward()
            adam.step()
    with torch.no_grad():
        assert ppo.policy(torch.randn(100, 3)).softmax(1)[:, 3].mean() > 0.8


def test_metrics_are_computed_where_somebody_reads_them():
    """The loss is always there; the rest belongs to the updates that are measured."""
    half = algorithms.make("critic", PPO, PPO.Options(**SMALL, precision="fp32"), DISCRETE, "cpu", 0)
    batch = {"obs": torch.randn(8, 3), "target": torch.randn(8)}
    assert set(half.update(batch, measured=False)) == {"critic_loss"}
    metrics = half.update(batch)
    assert set(metrics) == {"critic_loss", "target_mean", "explained_variance"}
    assert metrics["target_mean"].item() == pytest.approx(batch["target"].mean().item())


def test_images_go_through_convolutions():
    """Of a value network and of a policy of its own; what is no image is refused with what to do."""
    ppo = make(PPO, PIXELS)
    assert [layer["kind"] for layer in nn.describe(ppo.policy)][::2] == ["conv2d"] * 3 + ["linear"] * 2
    small = make(PPO, PIXELS, network="small_cnn", layer_norm=True)
    for network, size in ((small.value, 1), (small.policy, 6)):
        layers = nn.describe(network)
        assert [layer["out"] for layer in layers if "out" in layer] == [16, 32, 256, size]
        assert [layer["kind"] for layer in layers[:3]] == ["conv2d", "layer_norm", "relu"]
    with pytest.raises(InvalidEnvironment, match=r'"small_cnn" takes images \[channels, height, width\]'):
        PPO.check(DISCRETE, PPO.Options(network="small_cnn"))
