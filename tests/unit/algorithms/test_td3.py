"""TD3: its target and losses by hand, where gradients go, and a small control problem."""

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.td3 import TD3
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.replay import Batch
from tests.unit.algorithms.shipped import BOX, constant, make, parameters, transitions

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_sizes": (8, 6)}
C51 = {"num_atoms": 11, "v_min": -10.0, "v_max": 10.0}


def test_the_target_takes_the_lower_critic_without_entropy():
    """1 + 0.5 * min(7, 3) and a terminal 4; critics at 1 and 2."""
    td3, batch = make(TD3, BOX, **SMALL), transitions(BOX, 2)
    constant(td3.critics, 1.0, 2.0)
    constant(td3.target_critics, 7.0, 3.0)
    batch.reward, batch.discount = torch.tensor([1.0, 4.0]), torch.tensor([0.5, 0.0])
    batch.weight = torch.ones(2)
    loss = td3.critic_loss(batch)
    # Errors 1.5 and 3 of the first critic, 0.5 and 2 of the second.
    assert loss.loss.item() == pytest.approx(0.5 * ((1.5**2 + 3**2) / 2 + (0.5**2 + 2**2) / 2))
    assert loss.priorities.tolist() == pytest.approx([1.0, 2.5])


class Seen(torch.nn.Module):
    """Critics worth the sum of their inputs; remembers these."""

    def forward(self, x):
        """``[2, B, 1]``."""
        self.x = x.detach()
        return x.sum(1, keepdim=True).expand(2, -1, 1)


def test_target_actions_are_the_target_policys_with_clipped_noise():
    """Noise of deviation 10 is cut at 0.3, and actions at 1; the online policy is not asked."""
    td3 = make(TD3, BOX, target_noise=10.0, target_noise_clip=0.3, **SMALL)
    td3.target_critics = Seen()
    constant(td3.target_policy, 0.0, 2.0)
    constant(td3.policy, -3.0, -3.0)
    td3.critic_loss(transitions(BOX, 200))
    first, second = td3.target_critics.x[:, 3:].T
    assert first.abs().max().item() == pytest.approx(0.3)
    assert (first.abs() > 0.29).float().mean() > 0.9
    mode = float(np.tanh(2.0))
    assert second.max().item() == 1.0
    assert second.min().item() == pytest.approx(mode - 0.3, abs=1e-6)


def test_actions_reach_the_critics_scaled_to_one():
    """The bounds -1..1 and -2..4 become -1..1."""
    td3, batch = make(TD3, BOX, **SMALL), transitions(BOX, 2)
    td3.critics = Seen()
    batch.action = torch.tensor([[-1.0, 4.0], [0.5, 1.0]])
    td3.critic_loss(batch)
    assert td3.critics.x[:, 3:].tolist() == [[-1.0, 1.0], [0.5, 0.0]]


@pytest.mark.parametrize("options", [{}, C51], ids=["scalar", "c51"])
def test_gradients_go_where_they_should(options):
    """The critics' loss moves the critics, the policy's the policy through the first critic."""
    td3, batch = make(TD3, BOX, **SMALL, **options), transitions(BOX)
    td3.critic_loss(batch).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters(td3.critics))
    others = parameters(td3.policy, td3.target_policy, td3.target_critics)
    assert all(p.grad is None for p in others)
    td3.critics.zero_grad()
    td3.policy_loss(batch).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters(td3.policy))
    assert all((p.grad[0] != 0).any() and (p.grad[1] == 0).all() for p in parameters(td3.critics))
    assert all(p.grad is None for p in parameters(td3.target_policy, td3.target_critics))


def test_the_policy_loss_is_minus_the_first_critics_value():
    """Not the lower one's."""
    td3 = make(TD3, BOX, **SMALL)
    constant(td3.critics, 5.0, 2.0)
    assert td3.policy_loss(transitions(BOX)).loss.item() == pytest.approx(-5.0)


def test_both_targets_follow_after_a_critic_step():
    """A quarter of the way to the critics and to the policy that was received."""
    td3 = make(TD3, BOX, tau=0.25, **SMALL)
    with torch.no_grad():
        for parameter in parameters(td3.critics, td3.policy):
            parameter.fill_(2.0)
        for parameter in parameters(td3.target_critics, td3.target_policy):
            parameter.fill_(-2.0)
    td3.after_critic_step()
    assert all((p == -1.0).all() for p in parameters(td3.target_critics, td3.target_policy))
    assert all((p == 2.0).all() for p in parameters(td3.critics, td3.policy))


def test_targets_start_as_copies():
    """Of their own memory."""
    td3 = make(TD3, BOX, **SMALL)
    pairs = ((td3.critics, td3.target_critics), (td3.policy, td3.target_policy))
    for network, target in pairs:
        for parameter, copied in zip(network.parameters(), target.parameters(), strict=True):
            assert torch.equal(parameter, copied)
            assert parameter.data_ptr() != copied.data_ptr()


def test_its_options():
    """The paper's delay and tau; a range of noise that is upside down is refused."""
    options = TD3.Options()
    assert (options.policy_delay, options.tau, options.target_noise) == (2, 0.005, 0.2)
    with pytest.raises(InputError, match=r"noise_min = 0\.5 must not be above noise_max = 0\.4"):
        TD3.Options(noise_min=0.5)
    assert make(TD3, BOX).distribution().describe()["noise_max"] == 0.4


def test_it_finds_the_rewarded_action():
    """One step, one action in [-2, 2], reward -(a + 1)^2: the critics first, then both halves in turn."""
    bound = np.array([2.0], np.float32)
    env = EnvironmentSpec("none", {}, (1,), "float32", "box", (1,), -bound, bound)
    options = TD3.Options(hidden_sizes=(64, 64), learning_rate=3e-3, precision="fp32")
    critic, policy = (algorithms.make(part, TD3, options, env, "cpu", 1) for part in ("critic", "policy"))
    source = torch.Generator().manual_seed(0)
    for update in range(600):
        action = torch.rand(128, 1, generator=source) * 4 - 2
        obs = torch.randn(128, 1, generator=source)
        reward = -(action[:, 0] + 1.0).square()
        critic.update(Batch(obs, action, reward, torch.zeros(128), obs))
        if update >= 300:  # a policy that has followed wrong critics to the end of tanh comes back slowly
            policy.load_critic(critic.weights.numpy())
            policy.update(obs)
            critic.load_policy(policy.policy_arrays())
    with torch.no_grad():
        action = 2.0 * policy.algorithm.actions.mode(policy.algorithm.policy(torch.randn(64, 1)))
    assert (action + 1.0).abs().mean() < 0.2
