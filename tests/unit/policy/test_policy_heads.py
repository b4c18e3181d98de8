"""Continuous actions: each distribution against hand-computed numbers and against torch."""

import math

import numpy as np
import pytest
import torch
from examples import BOUNDS, HIGH, LOW, giving, rows
from torch import distributions

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.policy import with_noise

NORMAL = {"kind": "normal", "log_std_min": -1.0, "log_std_max": 0.5}
NOISY = {"kind": "deterministic", "noise_min": 0.1, "noise_max": 0.5}
SQUASHED = {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0}


def rng():
    """The same in every call."""
    return np.random.default_rng(3)


def test_tanh_normal_has_the_density_of_torch():
    """Of the squashed action in [-1, 1]."""
    policy = giving([0.3, -0.8, 0.2, -0.5], SQUASHED, **BOUNDS)
    action, log_prob = policy.act(rows(200), rng(), log_prob=True)
    log_std = -5.0 + 3.5 * (np.tanh([0.2, -0.5]) + 1.0)
    base = distributions.Normal(torch.tensor([0.3, -0.8]).double(), torch.from_numpy(np.exp(log_std)))
    squashed = distributions.TransformedDistribution(base, distributions.TanhTransform())
    unit = torch.from_numpy((action - (HIGH + LOW) / 2) / ((HIGH - LOW) / 2)).double()
    near = (unit.abs() < 0.95).all(1).numpy()  # float32 near the bounds has lost what was squashed
    assert near.sum() > 50
    np.testing.assert_allclose(log_prob[near], squashed.log_prob(unit).sum(1).numpy()[near], atol=1e-4)


def test_normal_draws_mean_plus_deviation_times_noise():
    """In units of half the box around its centre; the log deviation -3 is raised to -1."""
    action, log_prob = giving([0.5, -0.25, 0.25, -3.0], NORMAL, **BOUNDS).act(rows(5), rng(), log_prob=True)
    noise = rng().standard_normal((5, 2), np.float32)
    u = np.array([0.5, -0.25]) + np.exp([0.25, -1.0]) * noise
    np.testing.assert_allclose(action, np.array([0.0, 1.0]) + np.array([1.0, 3.0]) * u, atol=1e-5)
    expected = distributions.Normal(
        torch.tensor([0.5, -0.25]).double(), torch.tensor([0.25, -1.0]).double().exp()
    )
    np.testing.assert_allclose(log_prob, expected.log_prob(torch.from_numpy(u)).sum(1), atol=1e-5)


def test_the_density_of_a_normal_by_hand():
    """At the mean with deviation 1: -log(sqrt(2 pi)) for each action, less half the squared noise."""
    _, log_prob = giving([0.5, -0.25, 0.0, 0.0], NORMAL, **BOUNDS).act(rows(1), rng(), log_prob=True)
    noise = rng().standard_normal(2, np.float32)
    assert log_prob[0] == pytest.approx(-1.8378770664 - 0.5 * float(noise @ noise), rel=1e-6)


def test_a_normal_leaves_the_bounds_and_the_environment_does_not():
    """The rollout keeps what was drawn; the environment is given the nearest action of the box."""
    policy = giving([0.9, 0.9, 0.5, 0.5], NORMAL, **BOUNDS)
    action, _ = policy.act(rows(1000), rng())
    assert (action > HIGH).any(0).all()
    given = policy.env_action(action)
    np.testing.assert_array_equal(given, np.clip(action, LOW, HIGH))
    assert action.dtype == given.dtype == np.float32


def test_the_mode_of_a_normal_stays_within_the_bounds():
    """Mean 2 of the unit box is its upper bound, mean -0.5 a quarter of its width."""
    policy = giving([2.0, -0.5, 0.0, 0.0], NORMAL, **BOUNDS)
    np.testing.assert_allclose(policy.mode(rows(1)), [[1.0, -0.5]])


def test_without_bounds_a_normal_acts_in_the_units_of_its_network():
    """No centre, no scale, no clipping; version 0 acts by the network too."""
    for version in (0, 1):
        policy = giving([50.0, -80.0, 0.0, 0.0], NORMAL, version)
        action, log_prob = policy.act(rows(4), rng(), log_prob=True)
        noise = rng().standard_normal((4, 2), np.float32)
        np.testing.assert_allclose(action, np.array([50.0, -80.0]) + noise, rtol=1e-6)
        np.testing.assert_allclose(log_prob, -math.log(2 * math.pi) - 0.5 * (noise**2).sum(1), rtol=1e-5)
        assert np.array_equal(policy.env_action(action), action)
        np.testing.assert_array_equal(policy.mode(rows(1)), [[50.0, -80.0]])


def test_a_normal_with_one_of_two_bounds_is_refused():
    """Nor is an odd number of outputs a mean and a deviation of each action."""
    with pytest.raises(WireError, match="'action_high' is missing"):
        giving([0.0, 0.0, 0.0, 0.0], NORMAL, action_low=LOW)
    with pytest.raises(WireError, match="two numbers for each action, the last layer gives 3"):
        giving([0.0, 0.0, 0.0], NORMAL)


def test_deterministic_actions_are_the_squashed_output():
    """tanh(0.5) of the first half-width, tanh(-1) of the second."""
    policy = giving([0.5, -1.0], NOISY, **BOUNDS)
    expected = [math.tanh(0.5), 1.0 + 3.0 * math.tanh(-1.0)]
    np.testing.assert_allclose(policy.mode(rows(1))[0], expected, rtol=1e-6)


def test_noise_grows_over_the_places():
    """0.1 at place 0, 0.3 in the middle, 0.5 at place 1, in units of half the box."""
    policy = giving([0.0, 0.0], NOISY, **BOUNDS)
    place = np.repeat(np.array([0.0, 0.5, 1.0], np.float32), 20_000)
    action, log_prob = policy.act(rows(60_000), rng(), place=place)
    assert log_prob is None
    noise = rng().standard_normal((60_000, 2), np.float32)
    sigma = np.repeat([0.1, 0.3, 0.5], 20_000)[:, None]
    expected = np.array([0.0, 1.0]) + np.array([1.0, 3.0]) * np.clip(sigma * noise, -1.0, 1.0)
    np.testing.assert_allclose(action, expected, atol=1e-5)
    np.testing.assert_allclose(action[:20_000].std(0), [0.1, 0.3], rtol=0.02)


def test_places_are_evenly_spread_by_default():
    """The middle of each third of 0.1 to 0.7 for three environments; of the whole for a single one."""
    policy = giving([0.0, 0.0], {**NOISY, "noise_max": 0.7}, **BOUNDS)
    for num, sigma in ((3, [0.2, 0.4, 0.6]), (1, [0.4])):
        noise = rng().standard_normal((num, 2), np.float32)
        action, _ = policy.act(rows(num), rng())
        np.testing.assert_allclose(action[:, 0], np.clip(np.array(sigma) * noise[:, 0], -1, 1), atol=1e-6)


def test_who_explores_alone_has_in_each_episode_another_place():
    """A run's samplers have all from 0 to 1, of which a single environment would have the first alone."""
    policy = giving(
        [0.0], {**NOISY, "noise_min": 0.0, "noise_max": 0.5}, action_low=LOW[:1], action_high=HIGH[:1]
    )
    act, sizes = with_noise(policy, rng()), []
    for _ in range(20):
        frames = policy.frame_stack()
        frames.begin(rows(1))
        sizes.append(np.std([act(frames) for _ in range(200)]))
    assert min(sizes) < 0.1
    assert max(sizes) > 0.35
    assert len(set(sizes)) == 20


def test_noise_never_leaves_the_bounds():
    """It is clipped, not reflected: a saturated action stays at its bound."""
    action, _ = giving([9.0, -9.0], {**NOISY, "noise_min": 5.0, "noise_max": 5.0}, **BOUNDS).act(
        rows(500), rng()
    )
    assert action.min(0).tolist() == LOW.tolist()
    assert action.max(0).tolist() == HIGH.tolist()


def test_a_deterministic_policy_has_no_density():
    """Asking for one is a mistake that names it."""
    with pytest.raises(WireError, match="a deterministic policy has no log_prob"):
        giving([0.0, 0.0], NOISY, **BOUNDS).act(rows(2), rng(), log_prob=True)


@pytest.mark.parametrize(
    ("output", "distribution"), [([9.0] * 4, SQUASHED), ([9.0] * 4, NORMAL), ([9.0] * 2, NOISY)]
)
def test_version_zero_of_a_box_is_uniform(output, distribution):
    """Whatever the network says; the log density is that in [-1, 1]^2."""
    policy = giving(output, distribution, version=0, **BOUNDS)
    action, log_prob = policy.act(rows(50_000), rng(), log_prob=True)
    np.testing.assert_allclose(action.mean(0), [0.0, 1.0], atol=0.03)
    np.testing.assert_allclose(action.std(0), (HIGH - LOW) / math.sqrt(12), rtol=0.01)
    assert (action >= LOW).all()
    assert (action <= HIGH).all()
    np.testing.assert_allclose(log_prob, -2 * math.log(2), rtol=1e-6)
    assert policy.act(rows(2), rng())[1] is None
    np.testing.assert_allclose(policy.mode(rows(1)), [HIGH], rtol=1e-5)
