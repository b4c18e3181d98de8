"""What is set on a layer after a first call holds natively as in torch: hooks, ``forward``, numbers."""

import copy

import pytest
import torch
from torch.nn.modules import module as every_module

from spreeze_zmq import nn
from spreeze_zmq.nn.native.library import library
from spreeze_zmq.nn.native_choice import native_parts
from spreeze_zmq.nn.native_layers import LayerRun

pytestmark = pytest.mark.skipif(library().code is None, reason="no native layers here")

CHANGES = {
    "forward hook": lambda net: net[3].register_forward_hook(lambda layer, given, output: 2.0 * output),
    "forward pre-hook": lambda net: net[0].register_forward_pre_hook(lambda layer, given: (given[0] + 1.0,)),
    "hook of an activation": lambda net: net[2].register_forward_hook(lambda layer, given, output: -output),
    "backward hook": lambda net: net[3].register_full_backward_hook(
        lambda layer, of_x, of_y: (3.0 * of_x[0],)
    ),
    "backward pre-hook": lambda net: net[3].register_full_backward_pre_hook(
        lambda layer, of_y: (3.0 * of_y[0],)
    ),
    "forward hook of all": lambda net: every_module.register_module_forward_hook(
        lambda layer, given, output: 1.5 * output
    ),
    "backward hook of all": lambda net: every_module.register_module_full_backward_hook(
        lambda layer, of_x, of_y: tuple(None if each is None else 3.0 * each for each in of_x)
    ),
    "forward": lambda net: setattr(net[2], "forward", lambda x: 3.0 * x),
    "eps": lambda net: setattr(net[1], "eps", 0.5),
    "alpha": lambda net: setattr(net[2], "alpha", 0.5),
}


def results(network):
    """The output and the gradients of all parameters."""
    output = network(torch.randn(9, 6, generator=torch.Generator().manual_seed(2)))
    return [output.detach(), *torch.autograd.grad(output.square().sum(), list(network.parameters()))]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_an_inner_layer_holds_at_the_next_call_and_until_it_is_removed(name):
    """And changes what torch's layers compute."""
    theirs = nn.mlp((6, 20, 2), "elu", layer_norm=True)
    ours = copy.deepcopy(theirs)
    for part in native_parts(ours):
        part.formats = frozenset({torch.float32})
    before = results(ours)
    assert isinstance(ours.steps()[0], LayerRun)
    handle = CHANGES[name](theirs)
    try:
        every_one = handle is not None and "of all" in name
        handles = [handle, None if every_one else CHANGES[name](ours)]
        found, expected = results(ours), results(theirs)
    finally:
        for each in handles:
            if each is not None:
                each.remove()
    assert not all(map(torch.allclose, before, expected)), "the change shows in nothing"
    for mine, right in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)
    if handle is not None:
        assert all(map(torch.equal, results(ours), before))
