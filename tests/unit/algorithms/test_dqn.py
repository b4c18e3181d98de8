"""DQN and its extensions: targets and losses by hand, its schedule, its networks, a chain of states."""

import dataclasses

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.replay import Batch
from tests.unit.algorithms.shipped import (
    BOX,
    DISCRETE,
    PIXELS,
    SEVERAL,
    constant,
    make,
    parameters,
    transitions,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_sizes": (8, 6)}


def valued(double):
    """The trained network prefers action 2, its target values the actions 10, 20, 30 and 40."""
    dqn = make(DQN, DISCRETE, double=double, **SMALL)
    constant(dqn.q, 1.0, 2.0, 9.0, 3.0)
    constant(dqn.target_q, 10.0, 20.0, 30.0, 40.0)
    batch = transitions(DISCRETE, 3)
    batch.action = torch.tensor([0, 2, 1])
    batch.reward, batch.discount = torch.tensor([1.0, 1.0, 2.25]), torch.tensor([0.5, 0.25, 0.0])
    return dqn.critic_loss(batch)


def test_double_q_learning_takes_the_targets_value_of_the_trained_networks_choice():
    """1 + 0.5 * 30 less 1, 1 + 0.25 * 30 less 9, 2.25 less 2: Huber's 14.5, 0.125 and 0.03125."""
    loss = valued(double=True)
    assert loss.priorities.tolist() == pytest.approx([15.0, 0.5, 0.25])
    assert loss.loss.item() == pytest.approx((14.5 + 0.125 + 0.03125) / 3)
    assert loss.metrics["q_mean"]().item() == pytest.approx((1.0 + 9.0 + 2.0) / 3)


def test_plain_q_learning_takes_the_targets_best():
    """1 + 0.5 * 40 less 1, 1 + 0.25 * 40 less 9."""
    assert valued(double=False).priorities.tolist() == pytest.approx([20.0, 2.0, 0.25])


def test_the_gradient_of_an_error_is_clipped_to_one():
    """As the paper does: by a bias of the output, each action's share in the batch."""
    dqn, batch = make(DQN, DISCRETE, **SMALL), transitions(DISCRETE, 4)
    constant(dqn.q, 0.0, 0.0, 0.0, 0.0)
    batch.action, batch.discount = torch.tensor([0, 1, 2, 2]), torch.zeros(4)
    batch.reward = torch.tensor([100.0, -0.5, -100.0, -100.0])
    dqn.critic_loss(batch).loss.backward()
    assert parameters(dqn.q)[-1].grad.tolist() == [-0.25, 0.125, 0.5, 0.0]


def test_weights_scale_each_transition():
    """Twice the weight, twice the loss; the priorities stay."""
    dqn = make(DQN, DISCRETE, **SMALL)
    plain = dqn.critic_loss(transitions(DISCRETE))
    doubled = dqn.critic_loss(transitions(DISCRETE, weight=torch.full((16,), 2.0)))
    assert doubled.loss.item() == pytest.approx(2 * plain.loss.item(), rel=1e-6)
    assert torch.equal(doubled.priorities, plain.priorities)


def test_a_distribution_of_returns_by_hand():
    """Atoms -1, 0, 1: a target all at 1, moved by 0.5 - 0.5 * 1 to 0 and 1; even odds are learned from."""
    dqn = make(DQN, DISCRETE, num_atoms=3, v_min=-1.0, v_max=1.0, **SMALL)
    constant(dqn.q, *[0.0] * 12)
    constant(dqn.target_q, *[-100.0, -100.0, 100.0] * 4)
    batch = transitions(DISCRETE, 1)
    batch.reward, batch.discount = torch.tensor([0.25]), torch.tensor([0.25])
    loss = dqn.critic_loss(batch)
    # The only return, 0.25 + 0.25, is half way from 0 to 1.
    by_hand = 2 * 0.5 * np.log(0.5 * 3)
    assert loss.loss.item() == pytest.approx(by_hand, rel=1e-5)
    assert loss.priorities.tolist() == pytest.approx([by_hand], rel=1e-5)
    assert loss.metrics["q_mean"]().item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"dueling": True}, {"num_atoms": 5}, {"dueling": True, "num_atoms": 5}], ids=str
)
def test_gradients_go_to_the_trained_network_alone(options):
    """Through every layer; and the output has ``num_atoms`` numbers of each action."""
    dqn = make(DQN, DISCRETE, **SMALL, **options)
    batch = transitions(DISCRETE)
    assert dqn.q(batch.obs).shape == (16, dqn.distribution().num_outputs)
    dqn.critic_loss(batch).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters(dqn.q))
    assert all(p.grad is None for p in parameters(dqn.target_q))
    kinds = [layer["kind"] for layer in nn.describe(dqn.q)]
    assert ("dueling" in kinds) == options.get("dueling", False)


def test_the_target_follows_in_each_update_or_in_every_third():
    """By half in each; copied at the third."""
    for options, expected in (
        ({"tau": 0.5}, [1.0, 1.5, 1.75]),
        ({"tau": 1.0, "target_every": 3}, [0.0, 0.0, 2.0]),
    ):
        dqn = make(DQN, DISCRETE, **SMALL, **options)
        with torch.no_grad():
            for network, value in ((dqn.q, 2.0), (dqn.target_q, 0.0)):
                for parameter in network.parameters():
                    parameter.fill_(value)
        seen = []
        for _ in range(3):
            dqn.after_critic_step()
            seen.append(parameters(dqn.target_q)[0][0, 0].item())
        assert seen == expected


def test_exploration_falls_with_the_samples_of_the_run():
    """From 1 to 0.05 over 10,000 steps, then no further."""
    dqn = make(DQN, DISCRETE, epsilon_spread=7.0)
    epsilons = []
    for dqn.env_steps in (0, 5_000, 10_000, 1_000_000):
        epsilons.append(dqn.distribution().describe()["epsilon"])
    assert epsilons == pytest.approx([1.0, 0.525, 0.05, 0.05])
    assert dqn.distribution().describe()["spread"] == 7.0


def test_it_has_one_learner():
    """Its critic is its policy."""
    assert not DQN.has_policy_loss()
    networks = DQN(DQN.Options(), DISCRETE).networks()
    assert networks.acting in networks.critic
    assert not networks.policy


def test_images_go_through_the_nature_network():
    """Four frames of 84 x 84: 32, 64 and 64 filters, 512 units, six values."""
    dqn = make(DQN, PIXELS, network="nature_cnn", dueling=True)
    DQN.check(PIXELS, dqn.options)
    layers = nn.describe(dqn.q)
    assert [layer["out"] for layer in layers if "out" in layer] == [32, 64, 64, 512, 7]
    batch = transitions(PIXELS, 2)
    dqn.critic_loss(batch).loss.backward()
    assert parameters(dqn.q)[0].grad.abs().sum() > 0


@pytest.mark.parametrize("size", [36, 42, 50, 63, 64, 84, 96])
def test_images_of_any_size_keep_their_places(size):
    """The convolutions leave at least 4 x 4: a ball of one pixel is seen where it is."""
    dqn = make(DQN, dataclasses.replace(PIXELS, obs_shape=(1, size, size)))
    last = [layer for layer in dqn.q if isinstance(layer, nn.Conv)][-1]
    assert min(last.output_shape[1:]) >= 4


@pytest.mark.parametrize("shape", [(3,), (84, 84), (84, 84, 4)])
def test_the_nature_network_refuses_what_is_no_image(shape):
    """Before any process starts, with what to do."""
    env = EnvironmentSpec("none", {}, shape, "float32", "discrete", action_sizes=(2,))
    with pytest.raises(InvalidEnvironment, match=r"takes images \[channels, height, width\]"):
        DQN.check(env, DQN.Options(network="nature_cnn"))
    DQN.check(env, DQN.Options())


@pytest.mark.parametrize("env", [BOX, SEVERAL], ids=["box", "several"])
def test_only_one_discrete_action_can_be_valued(env):
    """It says in which spaces it acts."""
    with pytest.raises(InvalidEnvironment, match="acts in discrete action spaces"):
        DQN.check(env, DQN.Options())


def test_returns_upside_down_are_refused():
    """With both values."""
    with pytest.raises(InputError, match="v_min = 10 must lie below v_max = 10"):
        DQN.Options(v_min=10.0, v_max=10.0)


RANGE = {"v_min": -1.0, "v_max": 3.0}


@pytest.mark.parametrize(
    ("options", "largest", "support"),
    [
        ({}, None, (-5.0, 5.0)),
        ({"num_atoms": 21}, 5.0, (-5.0, 5.0)),
        ({"num_atoms": 21, **RANGE}, None, (-1.0, 3.0)),
        ({"num_atoms": 21, "normalize_rewards": True, **RANGE}, 5.0, (-1.0, 3.0)),
        ({"normalize_rewards": True}, 5.0, (-5.0, 5.0)),
        ({"normalize_rewards": False, "num_atoms": 21, **RANGE}, None, (-1.0, 3.0)),
    ],
)
def test_a_range_that_nobody_states_is_that_of_divided_rewards(options, largest, support):
    """The largest return that losses see, and the ends of the distribution."""
    made = DQN.Options(**options)
    assert (made.largest_return, made.support) == (largest, support)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"v_max": 3.0}, "v_max is stated, v_min is not: state both, or none"),
        ({"v_min": 3.0}, "v_min is stated, v_max is not: state both, or none"),
        ({"num_atoms": 21, "normalize_rewards": False}, "state v_min and v_max, the range of the returns"),
        ({"normalize_rewards": True, "v_min": 0.0, "v_max": 500.0}, "divided, returns reach 5; leave it out"),
    ],
)
def test_half_a_range_is_refused(options, problem):
    """Whatever the other half would be."""
    with pytest.raises(InputError, match=problem):
        DQN.Options(**options)


def test_values_are_published_in_the_units_of_the_environment():
    """Rewards that were divided by 20: a support of 5 means 100."""
    dqn = make(DQN, DISCRETE, num_atoms=3, **SMALL)
    dqn.reward_divisor = 20.0
    about = dqn.distribution().describe()
    assert (about["v_min"], about["v_max"]) == (-100.0, 100.0)


@pytest.mark.parametrize(
    "options",
    [{}, {"dueling": True, "target_every": 20, "tau": 1.0}, {"num_atoms": 21, "v_min": 0.0, "v_max": 1.0}],
    ids=["plain", "dueling", "c51"],
)
def test_it_learns_the_way_along_a_chain(options):
    """Five states; action 1 goes right, 0 back to the start, reward 1 at the end: powers of 0.8."""
    env = EnvironmentSpec("none", {}, (5,), "float32", "discrete", action_sizes=(2,))
    small = {"hidden_sizes": (32,), "learning_rate": 5e-3, "precision": "fp32", "tau": 0.1}
    half = algorithms.make("critic", DQN, DQN.Options(**{**small, **options}), env, "cpu", 0)
    source, states = torch.Generator().manual_seed(0), torch.eye(5)
    for _ in range(300):
        state = torch.randint(5, (64,), generator=source)
        action = torch.randint(2, (64,), generator=source)
        following = torch.where(action == 1, (state + 1).clamp(max=4), torch.zeros_like(state))
        done = (state == 4) & (action == 1)
        half.update(Batch(states[state], action, done.float(), 0.8 * ~done, states[following]))
    with torch.no_grad():
        values = half.algorithm.distribution().values(half.algorithm.q(states))
    assert values[:, 1].tolist() == pytest.approx([0.8**4, 0.8**3, 0.64, 0.8, 1.0], abs=0.06)
    assert values[:, 0].tolist() == pytest.approx([0.8**5] * 5, abs=0.06)


def test_images_are_shifted_at_random_where_the_options_ask_for_it():
    """Two losses of the same batch differ, and only then; vectors are refused."""
    options = {"network": "nature_cnn", "random_shift": 4}
    batch = transitions(PIXELS, 4)
    for shift, differ in ((4, True), (0, False)):
        dqn = make(DQN, PIXELS, **{**options, "random_shift": shift})
        losses = {dqn.critic_loss(batch).loss.item() for _ in range(3)}
        assert (len(losses) > 1) == differ
    with pytest.raises(InvalidEnvironment, match=r"random_shift = 4 moves images.*float32"):
        algorithms.check(DQN, DQN.Options(random_shift=4), DISCRETE)


def test_a_stack_is_more_channels_of_the_networks_image():
    """Whatever the order in which the environment gives height, width and channels; vectors are no images."""
    for shape in ((3, 40, 48), (40, 48, 3)):
        env = dataclasses.replace(PIXELS, obs_shape=shape)
        options = DQN.Options(network="nature_cnn", frame_stack=4)
        half = algorithms.make("critic", DQN, options, env, "cpu", 1)
        assert half.description()["layers"][0]["shape"] == [12, 40, 48]
        about = {"shape": list(shape), "normalize": True, "clip": 255.0, "stack": 4}
        if shape[2] == 3:
            about["channels_last"] = True
        assert half.description()["observation"] == about
    with pytest.raises(InvalidEnvironment, match=r"frame_stack = 2 is for images of uint8.*float32"):
        algorithms.check(DQN, DQN.Options(frame_stack=2), DISCRETE)
    assert "history" in DQN.fields_of("critic", 4)
    assert "history" not in DQN.fields_of("critic", 1)
