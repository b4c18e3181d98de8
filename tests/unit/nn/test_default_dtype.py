"""A user's module sets another default dtype: what is computed on float32 tensors stays float32's."""

import pytest
import torch

from spreeze_zmq import nn
from spreeze_zmq.nn import native_choice

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=[torch.float64, torch.bfloat16], ids=str)
def of_default(request):
    """Calls a function under another default dtype."""

    def called(function):
        torch.set_default_dtype(request.param)
        try:
            return function()
        finally:
            torch.set_default_dtype(torch.float32)

    yield called
    torch.set_default_dtype(torch.float32)


def random(*shape, seed=0):
    """Standard normal numbers; float32 under any default."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def slopes(function, x, *others):
    """What a function of ``x`` gives, and the gradient of its sum."""
    x = x.requires_grad_(True)
    found = function(x, *others)
    found = found if isinstance(found, tuple) else (found,)
    (gradient,) = torch.autograd.grad(sum(each.sum() for each in found), x)
    return [*(each.detach() for each in found), gradient]


def adam_steps():
    """The parameters after three steps of Adam."""
    parameters, gradient = random(20), torch.zeros(20, dtype=torch.float32)
    adam = nn.Adam(parameters, gradient, 1e-2)
    for step in range(3):
        gradient.copy_(random(20, seed=step))
        adam.step()
    return [parameters, adam.moments["steps"]]


COMPUTED = {
    "squashed normal": lambda: slopes(
        lambda x, y: nn.squashed_normal(x, y, -5.0, 2.0), random(9, 6), random(9, 3)
    ),
    "normal density": lambda: slopes(
        lambda x, y: nn.normal_log_prob(x, y, -5.0, 2.0), random(9, 6), random(9, 3)
    ),
    "expectation": lambda: slopes(lambda x: nn.expectation(x, -1.0, 2.0), random(2, 9, 5)),
    "divergence": lambda: slopes(nn.divergence, random(2, 9, 5), random(9, 5, seed=1).softmax(1)),
    "projection": lambda: [nn.project(random(9, 5).softmax(1), random(9), random(9).sigmoid(), -1.0, 2.0)],
    "Adam": adam_steps,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_lies_between_layers_has_the_bits_of_float32(way, of_default, name):
    """Natively and by torch; results and gradients are float32."""
    expected = COMPUTED[name]()
    found = of_default(COMPUTED[name])
    assert [each.dtype for each in found] == [torch.float32] * len(expected)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: nn.mlp((6, 33, 2), "silu", True), 6),
        (lambda: nn.cnn((2, 42, 42), 3, nn.CONVOLUTIONS["small_cnn"]), 3528),
    ],
    ids=["mlp", "cnn"],
)
def test_layers_are_measured_and_computed_as_under_float32(of_default, make, inputs):
    """Of a network with float32 parameters, whichever code computes it."""
    network = make()

    def results():
        line = native_choice.choose({"critic": network}, 64, [torch.float32]).line
        output = network(random(9, inputs))
        gradients = torch.autograd.grad(output.sum(), list(network.parameters()))
        return line, [output.detach(), *gradients]

    (line, expected), (other_line, found) = results(), of_default(results)
    assert other_line == line
    assert all(map(torch.equal, found, expected))
