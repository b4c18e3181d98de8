"""PQN: its Q(lambda) targets and its loss by hand, a bandit, pixels."""

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.pqn import PQN
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.learner.at_hand import random_round
from tests.unit.algorithms.shipped import DISCRETE, PIXELS, constant, make, parameters, transitions
from tests.unit.algorithms.test_ppo import end, rollouts

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_sizes": (8, 6)}


class Counted(torch.nn.Module):
    """Action values: the second of four actions is worth the observation's first number, the others less."""

    def forward(self, x):
        """``[B, 4]``."""
        return x[:, :1] - torch.tensor([[1.0, 0.0, 2.0, 3.0]])


def targets(made, **options):
    """Of PQN whose action values are counted; gamma is a half."""
    pqn = make(PQN, DISCRETE, **SMALL, gamma=0.5, **options)
    pqn.q = Counted()
    with torch.no_grad():
        return pqn.targets_of(made)["target"][:, 0].tolist()


def test_one_step_targets_are_those_of_q_learning():
    """1 + 0.5 * the best of the next state, whichever action is taken there."""
    assert targets(rollouts(), q_lambda=0.0) == pytest.approx([2.0, 2.5, 3.0])


def test_lambda_mixes_the_next_target_in():
    """Backwards: 3; then 1 + 0.5 * (0.5 * 3 + 0.5 * 3); then 1 + 0.5 * (0.5 * 2 + 0.5 * 2.5)."""
    assert targets(rollouts(), q_lambda=0.5) == pytest.approx([2.125, 2.5, 3.0])


def test_a_truncated_episode_is_worth_its_true_last_observation():
    """10 in place of the next episode's first one, and no target beyond it is mixed in."""
    made = end(rollouts(), 1, truncated=True, worth=10.0)
    assert targets(made, q_lambda=0.5) == pytest.approx([1 + 0.5 * (0.5 * 2 + 0.5 * 6), 6.0, 3.0])


def test_a_terminated_episode_is_worth_nothing_more():
    """Only its reward."""
    made = end(rollouts(), 1, truncated=False, worth=10.0)
    assert targets(made, q_lambda=0.5) == pytest.approx([1 + 0.5 * (0.5 * 2 + 0.5 * 1), 1.0, 3.0])


class Short(PQN):
    """Forgets a step."""

    def targets_of(self, rollouts):
        """``[T - 1, N]``."""
        return {name: value[1:] for name, value in super().targets_of(rollouts).items()}


def test_targets_of_a_wrong_shape_are_named():
    """With the shape that was expected."""
    half = algorithms.make("critic", Short, Short.Options(**SMALL), DISCRETE, "cpu", 1)
    made = random_round(DISCRETE, 64, "cpu")
    steps, envs = made.reward.shape
    with pytest.raises(AlgorithmError, match=rf"targets_of gives target as .*, expected \[{steps}, {envs}, "):
        half.prepare(made)


def test_the_loss_is_half_the_squared_error_of_the_action_taken():
    """And no other action's value is moved."""
    pqn, batch = make(PQN, DISCRETE, **SMALL), transitions(DISCRETE, 3)
    constant(pqn.q, 1.0, 2.0, 9.0, 3.0)
    batch.action, batch.target = torch.tensor([0, 0, 2]), torch.tensor([3.0, 1.0, 5.0])
    loss = pqn.critic_loss(batch)
    loss.loss.backward()
    assert loss.loss.item() == pytest.approx(0.5 * (4.0 + 0.0 + 16.0) / 3)
    bias = parameters(pqn.q)[-1].grad
    assert bias.tolist() == pytest.approx([-2.0 / 3, 0.0, 4.0 / 3, 0.0])


def test_it_finds_the_better_arm():
    """Of four actions, of which the third pays."""
    pqn, source = make(PQN, DISCRETE, **SMALL), torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(parameters(pqn.q), lr=1e-2)
    for _ in range(200):
        batch = transitions(DISCRETE, 64, seed=int(torch.randint(2**31, (), generator=source)))
        batch.target = (batch.action == 2).float()
        optimiser.zero_grad()
        pqn.critic_loss(batch).loss.backward()
        optimiser.step()
    assert (pqn.q(transitions(DISCRETE, 256, seed=9).obs).argmax(1) == 2).all()


def test_images_go_through_convolutions_each_of_which_is_normalised():
    """Flat rows in, the value of each of six actions out."""
    pqn = make(PQN, PIXELS)
    kinds = [type(layer).__name__ for layer in pqn.q]
    assert kinds == ["Conv", "LayerNorm", "ReLU"] * 3 + ["Linear", "LayerNorm", "ReLU", "Linear"]
    assert pqn.q(torch.zeros(2, 4 * 84 * 84)).shape == (2, 6)
