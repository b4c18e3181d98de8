"""The squashed Gaussian against numbers by hand, a numerical integral and autograd."""

import math

import pytest
import torch

from spreeze_zmq.algorithms.fast.tanh_normal import TanhNormal

CPU = torch.device("cpu")
DISTRIBUTION = TanhNormal(num_actions=1, log_std_min=-5.0, log_std_max=2.0, device=CPU, dtype=torch.float64)


def raw_for(log_std):
    """The network's output that stands for this log standard deviation."""
    return math.atanh((log_std + 5.0) / 3.5 - 1.0)


def test_log_std_lies_between_its_bounds():
    """Raw 0 is the middle, and the ends are reached but not passed."""
    for raw, log_std in ((0.0, -1.5), (100.0, 2.0), (-100.0, -5.0)):
        draw = DISTRIBUTION.draw(torch.tensor([[0.0, raw]]), torch.Generator())
        assert draw.std.item() == pytest.approx(math.exp(log_std), rel=1e-6)


def test_log_prob_by_hand():
    """A standard normal at u: -u^2/2 - log sqrt(2 pi) - log(1 - tanh(u)^2)."""
    draw = DISTRIBUTION.draw(torch.tensor([[0.3, raw_for(0.0)]]).double(), torch.Generator().manual_seed(3))
    noise = draw.noise.item()
    u = 0.3 + noise
    expected = -0.5 * noise**2 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(u) ** 2)
    assert draw.action.item() == pytest.approx(math.tanh(u), abs=1e-7)
    assert draw.log_prob.item() == pytest.approx(expected, abs=1e-6)


def test_the_density_integrates_to_one():
    """The mean of 1 / density over the draws is the length of [-1, 1], for three shapes of distribution."""
    for mean, log_std in ((0.0, -0.5), (0.5, -0.7), (-0.3, -0.3)):
        output = torch.tensor([[mean, raw_for(log_std)]]).double().expand(400_000, 2)
        draw = DISTRIBUTION.draw(output, torch.Generator().manual_seed(0))
        inside = (draw.action > -0.8) & (draw.action < 0.8)  # where 1 / density has a small variance
        length = ((-draw.log_prob).exp() * inside.squeeze(1)).mean().item()
        assert length == pytest.approx(1.6, rel=0.02)


def test_log_prob_is_the_sum_over_actions():
    """Independent actions: densities multiply."""
    both = TanhNormal(2, -5.0, 2.0, CPU).draw(
        torch.tensor([[0.1, -0.4, 0.2, 0.3]]), torch.Generator().manual_seed(0)
    )
    total = 0.0
    for i, (mean, raw) in enumerate(((0.1, 0.2), (-0.4, 0.3))):
        std = math.exp(-1.5 + 3.5 * math.tanh(raw))
        u = mean + std * both.noise[i, 0].item()
        total += -0.5 * both.noise[i, 0].item() ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)
        total -= math.log(1 - math.tanh(u) ** 2)
    assert both.log_prob.item() == pytest.approx(total, abs=1e-5)


def test_log_prob_stays_finite_far_out():
    """At u = 50 the plain log(1 - tanh^2) is minus infinity; it is 2 log 2 - 2 u."""
    draw = DISTRIBUTION.draw(torch.tensor([[50.0, -100.0]]), torch.Generator().manual_seed(0))
    u = 50.0 + math.exp(-5.0) * draw.noise.item()
    expected = -0.5 * draw.noise.item() ** 2 + 5.0 - 0.5 * math.log(2 * math.pi) - 2 * math.log(2) + 2 * u
    assert draw.log_prob.item() == pytest.approx(expected, rel=1e-5)


def test_the_gradient_equals_autograd():
    """Through action and log density at once, with respect to mean and raw log std."""
    distribution = TanhNormal(3, -5.0, 2.0, CPU, torch.float64)
    output = torch.randn(10, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    weight = torch.randn(10, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    draw = distribution.draw(output, torch.Generator().manual_seed(7))
    entropy_gradient = torch.tensor([-0.7], dtype=torch.float64)

    output.requires_grad_()
    mean, raw = output.chunk(2, dim=1)
    log_std = -5.0 + 3.5 * (raw.tanh() + 1.0)
    u = mean + log_std.exp() * draw.noise.T
    log_prob = (
        -0.5 * draw.noise.T**2 - log_std - 0.5 * math.log(2 * math.pi) - (1 - u.tanh() ** 2).log()
    ).sum(1)
    ((u.tanh() * weight).sum() + 0.7 * log_prob.sum()).backward()

    gradient = torch.empty(10, 6, dtype=torch.float64)
    distribution.backward(draw, weight, entropy_gradient, gradient)
    torch.testing.assert_close(gradient, output.grad)
    torch.testing.assert_close(draw.log_prob, log_prob.detach())
