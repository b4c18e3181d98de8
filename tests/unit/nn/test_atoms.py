"""Distributions on fixed atoms: natively and by torch, against numbers worked out by hand and in float64."""

import math

import numpy as np
import pytest
import torch

from spreeze_zmq import nn
from tests.pairwise import pairwise
from tests.unit.nn.conftest import WAYS

pytestmark = pytest.mark.usefixtures("one_thread")
NUMS = [2, 15, 16, 51, 101]
#: Of one network, of twins, and of more leading dimensions.
STACKED = pairwise(WAYS, [(), (2,), (2, 3)], NUMS)


def random(*shape, seed=0):
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shared(probability, r_t, discount_t, v_min, v_max):
    """Each atom's probability in float64, shared between the atoms about the place where it moves."""
    num_atoms = probability.shape[1]
    z = np.linspace(v_min, v_max, num_atoms)
    shares = np.zeros(probability.shape)
    for row, atom in np.ndindex(*probability.shape):
        moved = np.clip(float(r_t[row]) + float(discount_t[row]) * z[atom], v_min, v_max)
        near = 1.0 - np.abs(z - moved) / (z[1] - z[0])
        shares[row] += float(probability[row, atom]) * np.clip(near, 0.0, None)
    return torch.from_numpy(shares)


@pytest.mark.parametrize("num_atoms", NUMS)
def test_a_distribution_is_projected_as_in_float64(way, num_atoms):
    """For discounts of one step, of several, of none after termination, and for returns beyond the ends."""
    probability = (3.0 * random(40, num_atoms)).softmax(1)
    r_t, discount_t = 30.0 * random(40, seed=1), torch.tensor([0.99, 0.3, 0.0, 1.0]).repeat(10)
    found = nn.project(probability, r_t, discount_t, -20.0, 50.0)
    expected = shared(probability, r_t, discount_t, -20.0, 50.0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    assert found.sum(1).tolist() == pytest.approx([1.0] * 40, abs=1e-5)
    turned = nn.project(probability.T.contiguous().T, r_t, discount_t, -20.0, 50.0)
    torch.testing.assert_close(turned.double(), expected, rtol=1e-4, atol=1e-5)


def test_the_projection_of_what_is_no_number_is_none(way):
    """In its own row alone."""
    probability = random(3, 5).softmax(1)
    probability[1, 4] = math.nan
    found = nn.project(probability, random(3), torch.full((3,), 0.9), -1.0, 1.0)
    assert found.isnan().any(1).tolist() == [False, True, False]


@pytest.mark.parametrize(("r_t", "discount_t"), [((1,), (3,)), ((3,), (2,)), ((3, 1), (3,))], ids=str)
def test_rewards_of_other_rows_are_refused(way, r_t, discount_t):
    """Natively they would be read beyond their end."""
    with pytest.raises(ValueError, match=r"(r_t|discount_t) has the shape \[.*\], expected \[3\]"):
        nn.project(random(3, 5).softmax(1), random(*r_t), random(*discount_t), -1.0, 1.0)
    with pytest.raises(
        ValueError, match=r"probability_t has the shape \[2, 3, 5\], expected rows and columns"
    ):
        nn.project(random(2, 3, 5).softmax(1), random(3), random(3), -1.0, 1.0)


def test_a_projection_can_be_differentiated(way):
    """By torch: the sum of what is shared has a gradient of one."""
    probability = random(3, 5).softmax(1).requires_grad_(True)
    nn.project(probability, random(3), torch.full((3,), 0.9), -1.0, 1.0).sum().backward()
    torch.testing.assert_close(probability.grad, torch.ones(3, 5))


@pytest.mark.parametrize(
    ("r_t", "discount_t", "expected"),
    [
        (0.0, 1.0, [0.2, 0.3, 0.5]),
        (1.0, 0.0, [0.0, 0.0, 1.0]),
        (0.5, 1.0, [0.1, 0.25, 0.65]),
        (-9.0, 1.0, [1.0, 0.0, 0.0]),
        (0.0, 0.5, [0.1, 0.65, 0.25]),
    ],
    ids=["same", "terminal", "between", "below", "shrunk"],
)
def test_a_distribution_is_projected_by_hand(way, r_t, discount_t, expected):
    """Probabilities 0.2, 0.3 and 0.5 of the returns -1, 0 and 1."""
    probability = torch.tensor([[0.2, 0.3, 0.5]])
    found = nn.project(probability, torch.tensor([r_t]), torch.tensor([discount_t]), -1.0, 1.0)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_divergence_by_hand_and_its_gradient(way):
    """Of even odds from 1/4 and 3/4; the gradient by the logits is softmax less target."""
    logits = torch.zeros(1, 2, requires_grad=True)
    target = torch.tensor([[0.25, 0.75]])
    found = nn.divergence(logits, target)
    found.sum().backward()
    assert found.item() == pytest.approx(0.25 * np.log(0.5) + 0.75 * np.log(1.5), rel=1e-5)
    assert logits.grad.tolist() == [pytest.approx([0.25, -0.25])]
    certain = nn.divergence(torch.tensor([[0.0, -100.0]]), torch.tensor([[1.0, 0.0]]))
    assert certain.item() == pytest.approx(0.0, abs=1e-6)


def expected(logits, dtype):
    """Expectations between -20 and 400 and the gradient of a loss of them, in float64."""
    logits = logits.detach().to(dtype, copy=True).requires_grad_(True)
    if dtype == torch.float64:
        returns = torch.linspace(-20.0, 400.0, logits.shape[-1], dtype=dtype)
        found = (logits.softmax(-1) * returns).sum(-1)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            found = nn.expectation(logits, -20.0, 400.0)
    (found * random(*found.shape, seed=9).to(dtype)).sum().backward()
    return [each.detach().double() for each in (found, logits.grad)]


@pytest.mark.parametrize(("way", "leading", "num_atoms"), STACKED, indirect=["way"], ids=str)
def test_an_expectation_and_its_gradient_are_those_of_float64(way, leading, num_atoms):
    """For sharp and flat distributions and other strides, with bf16 asked for by autocast: rounded to it,
    they are off by up to 1.
    """
    for scale in (0.01, 1.0, 20.0):
        logits = scale * random(*leading, 37, num_atoms)
        exact = expected(logits, torch.float64)
        turned = logits.transpose(-1, -2).contiguous().transpose(-1, -2)
        for given in (logits, turned):
            for ours, right in zip(expected(given, torch.float32), exact, strict=True):
                torch.testing.assert_close(ours, right, rtol=2e-5, atol=2e-3)
        torch.testing.assert_close(nn.expectation(logits, -20.0, 400.0).double(), exact[0], rtol=0, atol=2e-4)


def test_an_expectation_can_be_differentiated_again_and_passes_on_what_is_no_number(way):
    """The second pass is torch's own. A logarithm of zero is a logit, too."""
    logits = random(4, 5).requires_grad_(True)
    (slope,) = torch.autograd.grad(nn.expectation(logits, -1.0, 1.0).sum(), logits, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), logits)[0].abs().min() > 0
    wrong = logits.detach().clone()
    wrong[2, 1] = math.nan
    assert nn.expectation(wrong, -1.0, 1.0).isnan().nonzero().tolist() == [[2]]
    certain = torch.tensor([[0.0, 0.25, 0.75]]).log()
    assert nn.expectation(certain, 0.0, 4.0).item() == pytest.approx(3.5, rel=1e-6)


def diverged(logits, target, dtype):
    """Divergences and the gradient of a loss of them, in float64."""
    logits = logits.detach().to(dtype, copy=True).requires_grad_(True)
    if dtype == torch.float64:
        target = target.double()
        found = (torch.xlogy(target, target) - target * logits.log_softmax(-1)).sum(-1)
    else:
        found = nn.divergence(logits, target)
    (found * random(*found.shape, seed=9).to(dtype)).sum().backward()
    return [each.detach().double() for each in (found, logits.grad)]


@pytest.mark.parametrize(("way", "leading", "num_atoms"), STACKED, indirect=["way"], ids=str)
def test_the_divergence_and_its_gradient_are_those_of_float64(way, leading, num_atoms):
    """For sharp and flat distributions, probabilities of zero among the targets, and for other strides."""
    target = (4.0 * random(37, num_atoms, seed=1)).softmax(1)
    target[:, 0] = 0.0
    target[3] = torch.eye(num_atoms)[1]
    for scale in (0.01, 1.0, 20.0):
        logits = scale * random(*leading, 37, num_atoms)
        exact = diverged(logits, target, torch.float64)
        turned = logits.transpose(-1, -2).contiguous().transpose(-1, -2)
        for given in (logits, turned):
            for ours, right in zip(diverged(given, target, torch.float32), exact, strict=True):
                torch.testing.assert_close(ours, right, rtol=2e-5, atol=2e-5)
        assert nn.divergence(logits, target).double().sub(exact[0]).abs().max() < 1e-4 * (1 + scale)


def test_a_divergence_can_be_differentiated_again_and_passes_on_what_is_no_number(way):
    """The second pass is torch's own."""
    logits, target = random(4, 5).requires_grad_(True), random(4, 5, seed=1).softmax(1)
    (slope,) = torch.autograd.grad(nn.divergence(logits, target).sum(), logits, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), logits)[0].abs().min() > 0
    wrong = logits.detach().clone()
    wrong[2, 1] = math.nan
    assert nn.divergence(wrong, target).isnan().nonzero().tolist() == [[2]]
    learned = target.clone().requires_grad_(True)
    nn.divergence(logits.detach(), learned).sum().backward()
    assert learned.grad.abs().min() > 0
