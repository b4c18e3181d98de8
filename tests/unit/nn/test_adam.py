"""Adam over one flat buffer, natively and as torch has it: that of float64."""

import math

import pytest
import torch

from spreeze_zmq import nn
from tests.pairwise import pairwise
from tests.unit.nn.conftest import WAYS
from tests.unit.nn.test_fused import random

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("way", "size", "decay", "longest"),
    [(way, size, *rates) for way, size, rates in pairwise(WAYS, [1, 15, 1000], [(0, 0), (0.1, 0), (0.1, 3)])],
    indirect=["way"],
)
def test_adam_is_that_of_float64(way, size, decay, longest):
    """300 steps of torch's AdamW, where asked with long gradients shortened; single numbers at the end
    neither decay nor count for that; gradients are cleared.
    """
    num_weights = size - size // 3
    start, gradients = random(size), [random(size, seed=step) * 10.0 ** (step % 5 - 3) for step in range(300)]
    exact = [
        start[part].double().requires_grad_(True) for part in (slice(num_weights), slice(num_weights, None))
    ]
    groups = [{"params": [exact[0]], "weight_decay": decay}, {"params": [exact[1]], "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    ours, given = start.clone(), torch.zeros(size)
    rates = {"beta2": 0.95, "weight_decay": decay, "num_weights": num_weights, "max_gradient_norm": longest}
    adam = nn.Adam(ours, given, 1e-2, **rates)
    for gradient in gradients:
        exact[0].grad, exact[1].grad = gradient.double().split([num_weights, size - num_weights])
        if longest:
            torch.nn.utils.clip_grad_norm_(exact[:1], longest)
        theirs.step()
        given.copy_(gradient)
        adam.step()
        assert not given.any()
    assert adam.state_dict()["steps"].item() == 300
    expected = torch.cat(exact).detach()
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=2e-6)
    assert (expected - start).abs().mean() > 1e-2, "nothing moved: the comparison would show nothing"


def test_a_gradient_that_is_no_number_is_passed_on(way):
    """So that a run that diverges is noticed, as under torch's Adam."""
    ours, gradient = torch.ones(20), torch.ones(20)
    gradient[3] = math.nan
    nn.Adam(ours, gradient, 1e-2).step()
    assert ours.isnan().nonzero().tolist() == [[3]]


def test_a_gradient_of_another_size_is_refused():
    """Natively it would be read beyond its end."""
    with pytest.raises(ValueError, match=r"gradient has the shape \[7\], expected \[8\]"):
        nn.Adam(random(8), random(7), 0.1)
