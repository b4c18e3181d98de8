"""What an update does between its layers: natively as in float64, and as torch alone has it."""

import math

import pytest
import torch

from spreeze_zmq import nn
from spreeze_zmq.nn.device.tape import Tape
from spreeze_zmq.nn.fused import scaled_bytes

pytestmark = pytest.mark.usefixtures("one_thread")


def random(*shape, seed=0):
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_targets_move_by_their_share(way):
    """Every parameter of them, and none of the source's."""
    target, source = nn.mlp((5, 33, 2)), nn.mlp((5, 33, 2))
    kept = [parameter.detach().clone() for parameter in source.parameters()]
    expected = [
        0.75 * follower.detach().double() + 0.25 * leader
        for follower, leader in zip(target.parameters(), kept, strict=True)
    ]
    nn.polyak(target, source, 0.25)
    for found, right in zip(target.parameters(), expected, strict=True):
        torch.testing.assert_close(found.double(), right, rtol=1e-6, atol=1e-7)
    assert all(map(torch.equal, source.parameters(), kept))
    with torch.no_grad():
        nn.polyak(target, source, 1.0)
    for found, right in zip(target.parameters(), kept, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-7)


def four_operations(x, mean, std, limit):
    """The bits of scaled bytes as torch computes them one after the other."""
    return x.float().sub(mean).div(std).clamp(-limit, limit).view(torch.int32)


@pytest.mark.parametrize("limit", [10.0, math.inf])
@pytest.mark.parametrize("size", [1, 7, 33, 1300])
def test_bytes_are_scaled_as_by_torchs_four_operations(way, size, limit, monkeypatch):
    """To the bit, also of rows in pieces and of none, and when a recorded update is replayed on others."""
    monkeypatch.setattr("spreeze_zmq.nn.fused.MOST_SCALING_THREADS", math.inf)  # of this machine
    x = torch.arange(3 * size).reshape(3, size).to(torch.uint8)
    mean, std = random(size) * 50 + 100, random(size, seed=1).abs() / 10 + 1e-3
    mean[0] = x[1, 0]
    for rows in (x, torch.cat([x, x], 1)[:, size // 2 : size // 2 + size], x[:0]):
        scaled = scaled_bytes(rows, mean, std, limit)
        assert torch.equal(scaled.view(torch.int32), four_operations(rows, mean, std, limit))
    tape = Tape()
    scaled = tape.record(lambda: scaled_bytes(x, mean, std, limit))
    x.add_(1)
    for step in tape.steps():
        step()
    assert torch.equal(scaled.view(torch.int32), four_operations(x, mean, std, limit))


def drawn(output, noise, dtype):
    """Actions, their log densities, and the gradient of a loss of both."""
    output, noise = output.detach().to(dtype, copy=True).requires_grad_(True), noise.to(dtype)
    action, log_prob = nn.squashed_normal(output, noise, -5.0, 2.0)
    weights = [random(*each.shape, seed=9).to(dtype) for each in (action, log_prob)]
    ((action * weights[0]).sum() + (log_prob * weights[1]).sum()).backward()
    return [each.detach().double() for each in (action, log_prob, output.grad)]


@pytest.mark.parametrize("actions", [1, 6, 17, 32])
def test_actions_their_density_and_their_gradient_are_those_of_float64(way, actions):
    """For outputs near and far from zero."""
    for scale in (0.01, 1.0, 4.0):
        output, noise = scale * random(37, 2 * actions), random(37, actions, seed=1)
        found, exact = drawn(output, noise, torch.float32), drawn(output, noise, torch.float64)
        for ours, right in zip(found, exact, strict=True):
            # Of u = 4 + 10 noise, 1 - tanh(u)^2 itself is a difference of ones.
            torch.testing.assert_close(ours, right, rtol=2e-5, atol=2e-5)


def test_the_density_of_far_actions_is_finite(way):
    """At u = 50 the plain log(1 - tanh(u)^2) is minus infinity; it is 2 log 2 - 2 |u|."""
    output = torch.tensor([[50.0, -1e3], [-50.0, -1e3]])
    action, log_prob = nn.squashed_normal(output, torch.zeros(2, 1), -5.0, 2.0)
    assert action.tolist() == [[1.0], [-1.0]]
    expected = 5.0 - 0.5 * math.log(2 * math.pi) - 2 * math.log(2) + 100.0
    assert log_prob.tolist() == pytest.approx([expected] * 2, rel=1e-5)


def test_a_draw_can_be_differentiated_again_and_passes_on_what_is_no_number(way):
    """The second pass is torch's own."""
    output, noise = random(5, 4).requires_grad_(True), random(5, 2, seed=1)
    action, log_prob = nn.squashed_normal(output, noise, -5.0, 2.0)
    (slope,) = torch.autograd.grad(action.sum() + log_prob.sum(), output, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), output)[0].abs().min() > 0
    wrong = output.detach().clone()
    wrong[2, 1] = math.nan
    action, log_prob = nn.squashed_normal(wrong, noise, -5.0, 2.0)
    assert action.isnan().nonzero().tolist() == [[2, 1]]
    assert log_prob.isnan().nonzero().tolist() == [[2]]


def test_other_strides_are_heeded(way):
    """Of the output, of the noise and of the gradients that autograd hands over."""
    output, noise = random(8, 7).T, random(4, 7, seed=1).T
    for ours, right in zip(
        drawn(output, noise, torch.float32), drawn(output, noise, torch.float64), strict=True
    ):
        torch.testing.assert_close(ours, right, rtol=2e-5, atol=2e-5)
    leaf = output.contiguous().requires_grad_(True)
    action, log_prob = nn.squashed_normal(leaf, noise.contiguous(), -5.0, 2.0)
    found = torch.autograd.grad(
        (action, log_prob), leaf, (random(1, 4).expand(7, 4), torch.ones(1).expand(7))
    )[0]
    wide = output.double().contiguous().requires_grad_(True)
    both = nn.squashed_normal(wide, noise.double(), -5.0, 2.0)
    given = random(1, 4).double().expand(7, 4), torch.ones(7).double()
    torch.testing.assert_close(
        found.double(), torch.autograd.grad(both, wide, given)[0], rtol=2e-5, atol=2e-5
    )


def density(output, action, dtype):
    """Log densities under a normal distribution, and the gradient of a loss of them."""
    output, action = output.detach().to(dtype, copy=True).requires_grad_(True), action.to(dtype)
    log_prob = nn.normal_log_prob(output, action, -3.0, 1.5)
    (log_prob * random(len(action), seed=9).to(dtype)).sum().backward()
    return [each.detach().double() for each in (log_prob, output.grad)]


@pytest.mark.parametrize("actions", [1, 6, 17, 32])
def test_a_normal_density_and_its_gradient_are_those_of_float64(way, actions):
    """Also where log standard deviations are clipped, whose gradient is then none, and for other strides."""
    output, action = 2.0 * random(37, 2 * actions), random(37, actions, seed=1)
    found, exact = density(output, action, torch.float32), density(output, action, torch.float64)
    for ours, right in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, right, rtol=2e-5, atol=2e-5)
    log_std = output[:, actions:]
    assert (found[1][:, actions:][(log_std < -3.0) | (log_std > 1.5)] == 0.0).all()
    mean, deviation = output[:, :actions].double(), log_std.double().clamp(-3.0, 1.5).exp()
    expected = torch.distributions.Normal(mean, deviation).log_prob(action.double()).sum(1)
    torch.testing.assert_close(found[0], expected, rtol=2e-5, atol=2e-5)
    turned = density(output.T.contiguous().T, action.T.contiguous().T, torch.float32)
    for ours, right in zip(turned, exact, strict=True):
        torch.testing.assert_close(ours, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("function", [nn.normal_log_prob, nn.squashed_normal])
def test_a_gradient_for_actions_or_noise_is_not_lost(way, function):
    """Natively there is none: torch computes it where it is wanted."""
    output = random(5, 4).clamp(-1.0, 1.0).requires_grad_(True)
    given = random(5, 2, seed=1).requires_grad_(True)
    found = function(output, given, -3.0, 1.5)
    log_prob = found[1] if isinstance(found, tuple) else found
    gradients = torch.autograd.grad(log_prob.sum(), (output, given))
    assert all(gradient.abs().min() > 0 for gradient in gradients)


def test_a_normal_density_can_be_differentiated_again(way):
    """The second pass is torch's own."""
    output = random(5, 4).clamp(-1.0, 1.0).requires_grad_(True)
    log_prob = nn.normal_log_prob(output, random(5, 2, seed=1), -3.0, 1.5)
    (slope,) = torch.autograd.grad(log_prob.sum(), output, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), output)[0].abs().min() > 0
    wrong = output.detach().clone()
    wrong[2, 1] = math.nan
    assert nn.normal_log_prob(wrong, random(5, 2), -3.0, 1.5).isnan().nonzero().tolist() == [[2]]


@pytest.mark.parametrize("shape", [(1, 3), (8, 4), (8, 1), (9, 3), (24,), (2, 4, 3)], ids=str)
def test_rows_that_do_not_belong_together_are_refused(shape):
    """Natively they would be read beyond their end."""
    output = random(8, 6)
    wrong = r"output has the shape \[8, 6\], expected \[" if len(shape) == 2 else "expected rows and columns"
    for density in (nn.squashed_normal, nn.normal_log_prob):
        with pytest.raises(ValueError, match=wrong):
            density(output, random(*shape), -5.0, 2.0)
