"""Each distribution against the sampler's NumPy, against numbers by hand, and without torch where it can."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms import distributions
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.policy import heads

LOW, HIGH = np.array([-1.0, -2.0], np.float32), np.array([1.0, 4.0], np.float32)


def box(low=LOW, high=HIGH):
    """Two actions, or as many as there are bounds."""
    shape = (2,) if low is None else low.shape
    return EnvironmentSpec("none", {}, (3,), "float32", "box", shape, low, high)


def discrete(*sizes):
    """One action for each size."""
    kind, shape = ("discrete", ()) if len(sizes) == 1 else ("multi_discrete", (len(sizes),))
    return EnvironmentSpec("none", {}, (3,), "float32", kind, shape, action_sizes=sizes)


def outputs(size, num=50, seed=0):
    """Rows of an acting network."""
    return 1.5 * torch.randn(num, size, generator=torch.Generator().manual_seed(seed))


def sampler_of(distribution):
    """The NumPy side of the same description."""
    return heads.make_head(distribution.describe(), distribution.arrays(), distribution.num_outputs)


def test_importing_and_making_one_costs_no_torch():
    """Samplers and launchers read descriptions."""
    code = (
        "import sys; from spreeze_zmq.algorithms import distributions as d;"
        "from spreeze_zmq.envs import EnvironmentSpec as E;"
        "d.Categorical(E('', {}, (1,), 'float32', 'discrete', action_sizes=(2,))).describe();"
        "d.Normal(E('', {}, (1,), 'float32', 'box', (1,))).describe();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "distribution",
    [
        distributions.TanhNormal(box(), -5.0, 2.0),
        distributions.Normal(box(), -3.0, 1.0),
        distributions.Normal(box(None, None), -3.0, 1.0),
    ],
    ids=["tanh_normal", "normal", "unbounded"],
)
def test_densities_are_those_that_the_sampler_sends(distribution):
    """Of the actions that NumPy draws from the same rows; modes agree too."""
    rows, sampler = outputs(distribution.num_outputs), sampler_of(distribution)
    action, density = sampler.draw(rows.numpy(), np.random.default_rng(1), None, True)
    ours = distribution.log_prob(rows, torch.from_numpy(action))
    # Of tanh near its ends, float32 actions have lost the number that they were made of.
    inside = np.abs(distribution.unit(torch.from_numpy(action)).numpy()).max(1) < 0.999
    every = distribution.describe()["kind"] == "normal"
    kept = slice(None) if every else inside
    assert every or inside.sum() > 20
    np.testing.assert_allclose(ours.numpy()[kept], density[kept], rtol=1e-4 if not every else 1e-5, atol=1e-4)


class WithNoise(distributions.TanhNormal):
    """Takes its noise from numpy, as a sampler with the same seed does."""

    def noise(self, mean):
        """The first numbers of seed 2."""
        return torch.from_numpy(np.random.default_rng(2).standard_normal(tuple(mean.shape), np.float32))


def test_a_squashed_sample_is_made_of_noise_as_the_samplers_is():
    """The same noise on both sides: actions and densities to 1e-5."""
    distribution, rows = WithNoise(box(), -5.0, 2.0), outputs(4)
    unit, density = distribution.sample(rows)
    action, expected = sampler_of(distribution).draw(rows.numpy(), np.random.default_rng(2), None, True)
    np.testing.assert_allclose(unit.numpy() * [1.0, 3.0] + [0.0, 1.0], action, atol=1e-5)
    np.testing.assert_allclose(density.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_squashed_density_by_hand():
    """Mean 0 and log std -1.5: that of N(0, e^-1.5) at atanh(0.5), less log(1 - 0.25)."""
    distribution = distributions.TanhNormal(box(np.float32([-1]), np.float32([1])), -5.0, 2.0)
    u = math.atanh(0.5)
    by_hand = -0.5 * (u * math.exp(1.5)) ** 2 + 1.5 - 0.5 * math.log(2 * math.pi) - math.log(0.75)
    found = distribution.log_prob(torch.zeros(1, 2), torch.tensor([[0.5]]))
    assert found.item() == pytest.approx(by_hand, rel=1e-5)


def test_a_saturated_action_has_a_finite_density():
    """At the very bound, where the inverse of tanh is infinite."""
    distribution = distributions.TanhNormal(box(), -5.0, 2.0)
    at_bounds = torch.tensor([[1.0, 4.0], [-1.0, -2.0]])
    assert torch.isfinite(distribution.log_prob(torch.zeros(2, 4), at_bounds)).all()


@pytest.mark.parametrize("kind", [distributions.TanhNormal, distributions.Normal])
def test_samples_carry_gradients_to_mean_and_deviation(kind):
    """Reparameterised: d action / d output, against central differences."""
    distribution = kind(box(), -5.0, 2.0)
    rows = outputs(4, num=6).clamp(-1.0, 1.0)
    weight = torch.randn(6, 2, generator=torch.Generator().manual_seed(3))

    def value(output):
        torch.manual_seed(5)
        unit, density = distribution.sample(output)
        return (unit * weight).sum() + density.sum()

    leaf = rows.clone().requires_grad_()
    value(leaf).backward()
    for place in ((0, 0), (3, 1), (2, 2), (5, 3)):
        step = torch.zeros_like(rows)
        step[place] = 1e-2
        slope = (value(rows + step) - value(rows - step)) / 2e-2
        assert leaf.grad[place].item() == pytest.approx(slope.item(), abs=5e-3)


def test_the_entropy_of_a_normal_is_the_mean_of_minus_its_log_density():
    """By hand for log std 0 and -1, two actions, and over many samples."""
    distribution = distributions.Normal(box(), -5.0, 2.0)
    row = torch.tensor([[0.3, -0.2, 0.0, -1.0]])
    by_hand = 2 * 0.5 * math.log(2 * math.pi * math.e) - 1.0
    assert distribution.entropy(row).item() == pytest.approx(by_hand, rel=1e-6)
    torch.manual_seed(0)
    _, density = distribution.sample(row.expand(20_000, 4))
    assert -density.mean().item() == pytest.approx(by_hand, abs=0.03)


def test_log_deviations_of_a_normal_are_clipped():
    """Beyond its limits the entropy stays."""
    distribution = distributions.Normal(box(), -1.0, 1.0)
    high, higher = (distribution.entropy(torch.full((1, 4), value)) for value in (1.0, 7.0))
    assert torch.equal(high, higher)


def test_a_deterministic_mode_is_the_samplers():
    """tanh, and no arrays but the bounds."""
    distribution = distributions.Deterministic(box(), 0.1, 0.4)
    rows = outputs(2)
    unit = distribution.mode(rows).numpy()
    np.testing.assert_allclose(
        unit * [1.0, 3.0] + [0.0, 1.0], sampler_of(distribution).mode(rows.numpy()), atol=1e-5
    )
    assert distribution.describe() == {"kind": "deterministic", "noise_min": 0.1, "noise_max": 0.4}
    assert {name: array.tolist() for name, array in distribution.arrays().items()} == {
        "action_low": [-1.0, -2.0],
        "action_high": [1.0, 4.0],
    }


def test_unit_actions_are_scaled_by_the_bounds():
    """Low is -1, the middle 0, high 1; without bounds nothing changes."""
    action = torch.tensor([[-1.0, -2.0], [0.0, 1.0], [1.0, 4.0]])
    unit = distributions.Deterministic(box(), 0.1, 0.4).unit(action)
    assert unit.tolist() == [[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]
    assert torch.equal(distributions.Normal(box(None, None)).unit(action), action)
    assert distributions.Normal(box(None, None)).arrays() == {}


@pytest.mark.parametrize("sizes", [(4,), (3, 2, 4)])
def test_probabilities_of_choices_are_the_samplers(sizes):
    """One action and several, which add up."""
    distribution = distributions.Categorical(discrete(*sizes))
    rows = outputs(distribution.num_outputs)
    action, density = sampler_of(distribution).draw(rows.numpy(), np.random.default_rng(0), None, True)
    ours = distribution.log_prob(rows, torch.from_numpy(action))
    np.testing.assert_allclose(ours.numpy(), density, rtol=1e-5, atol=1e-5)
    torch.manual_seed(0)
    sampled, log_prob = distribution.sample(rows)
    assert sampled.shape == ((50,) if len(sizes) == 1 else (50, 3))
    torch.testing.assert_close(log_prob, distribution.log_prob(rows, sampled))


def test_choices_by_hand():
    """Probabilities 1/4 and 3/4 beside 1/2 and 1/2: log prob and entropy; sampled as often."""
    distribution = distributions.Categorical(discrete(2, 2))
    row = torch.tensor([[0.0, math.log(3.0), 5.0, 5.0]])
    assert distribution.log_prob(row, torch.tensor([[1, 0]])).item() == pytest.approx(math.log(0.375))
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75) + math.log(2)
    assert distribution.entropy(row).item() == pytest.approx(entropy)
    torch.manual_seed(0)
    sampled, _ = distribution.sample(row.expand(10_000, 4))
    assert sampled.float().mean(0).tolist() == pytest.approx([0.75, 0.5], abs=0.02)


@pytest.mark.parametrize("atoms", [1, 11])
def test_values_of_actions_are_the_samplers(atoms):
    """As they come, or expected over the atoms."""
    distribution = distributions.EpsilonGreedy(discrete(3), 0.1, 7.0, atoms, -2.0, 5.0)
    rows, sampler = outputs(3 * atoms), sampler_of(distribution)
    np.testing.assert_allclose(
        distribution.values(rows).numpy(), sampler.values(rows.numpy()), rtol=1e-5, atol=1e-5
    )
    assert distribution.values(rows).argmax(1).tolist() == sampler.mode(rows.numpy()).tolist()


def test_expected_values_by_hand():
    """Two actions of three atoms -1, 0, 1: all on the last, and evenly on the outer two."""
    distribution = distributions.EpsilonGreedy(discrete(2), 0.0, 0.0, 3, -1.0, 1.0)
    row = torch.tensor([[-50.0, -50.0, 0.0, 3.0, -50.0, 3.0]])
    assert distribution.values(row).tolist() == [pytest.approx([1.0, 0.0], abs=1e-6)]
    assert distribution.describe() == {
        "kind": "epsilon_greedy",
        "num_actions": 2,
        "epsilon": 0.0,
        "spread": 0.0,
        "atoms": 3,
        "v_min": -1.0,
        "v_max": 1.0,
    }
