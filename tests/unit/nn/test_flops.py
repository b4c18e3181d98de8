"""Counting matrix products and convolutions, against torch's own counter."""

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from spreeze_zmq import nn


def networks():
    """By name: a network and the shape of its input."""
    image = (4, 20, 20)
    return {
        "mlp": (nn.mlp((7, 16, 16, 3), "tanh", True), (5, 7)),
        "cnn": (nn.cnn(image, 6, nn.SMALL), (5, 4 * 20 * 20)),
        "conv2d": (torch.nn.Conv2d(6, 8, 3, stride=2), (5, 6, 9, 9)),
        "ensemble": (nn.ensemble(3, lambda: nn.mlp((7, 16, 2))), (5, 7)),
        "gru": (torch.nn.GRU(7, 8), (4, 5, 7)),
    }


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("of_input", [False, True], ids=["", "of input"])
def test_forward_and_backward_passes_are_counted_as_torch_counts_them(name, of_input):
    """Also where the gradient of the input is wanted."""
    network, shape = networks()[name]
    counts = []
    for counter in (FlopCounterMode(display=False), nn.CountedProducts()):
        x = torch.randn(shape, requires_grad=of_input)
        with counter:
            out = network(x)
            (out[0] if isinstance(out, tuple) else out).square().sum().backward()
        counts.append(counter.flops if isinstance(counter, nn.CountedProducts) else counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_native_layers_are_counted_too():
    """They are left to torch meanwhile, and are native again afterwards."""
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    nn.choose({"network": network}, 32, (torch.float32,))
    network.formats = frozenset({torch.float32})
    x = torch.randn(32, 8)
    before = network(x)
    with nn.CountedProducts() as counted:
        network(x)
    assert counted.flops == 2 * 32 * (8 * 16 + 16 * 2)
    assert torch.equal(network(x), before)


def test_counting_imports_no_compiler():
    """That would take each learner seconds at its start."""
    code = (
        "import sys, torch; from spreeze_zmq import nn\n"
        "with nn.CountedProducts() as counted: torch.nn.Linear(2, 3)(torch.ones(1, 2)).sum().backward()\n"
        "assert counted.flops == 24, counted.flops\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_core_multiplies_at_least_as_fast_as_torch_does():
    """And no faster than any core: 16 lanes, two units, two operations each at 6 GHz."""
    threads = torch.get_num_threads()
    found = nn.most_flops_per_s("cpu", torch.float32)
    assert 1e8 < found < 16 * 2 * 2 * 6e9
    assert torch.get_num_threads() == threads
