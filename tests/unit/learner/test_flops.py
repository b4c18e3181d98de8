"""Counting matrix products and convolutions, against torch's own counter."""

import time
import timeit

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from spreeze_zmq import nn
from spreeze_zmq.learner.arithmetic import CountedProducts, most_flops_per_s, multiply_limits
from spreeze_zmq.nn.native.library import library


def networks():
    """By name: a network and the shape of its input."""
    image = (4, 20, 20)
    return {
        "mlp": (nn.mlp((7, 16, 16, 3), "tanh", True), (5, 7)),
        "cnn": (nn.cnn(image, 6, nn.CONVOLUTIONS["small_cnn"]), (5, 4 * 20 * 20)),
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
    for counter in (FlopCounterMode(display=False), CountedProducts()):
        x = torch.randn(shape, requires_grad=of_input)
        with counter:
            out = network(x)
            (out[0] if isinstance(out, tuple) else out).square().sum().backward()
        counts.append(counter.flops if isinstance(counter, CountedProducts) else counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_native_layers_are_counted_too():
    """They are left to torch meanwhile, and are native again afterwards."""
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    nn.choose({"network": network}, 32, (torch.float32,))
    network.formats = frozenset({torch.float32})
    x = torch.randn(32, 8)
    before = network(x)
    with CountedProducts() as counted:
        network(x)
    assert counted.flops == 2 * 32 * (8 * 16 + 16 * 2)
    assert torch.equal(network(x), before)


def test_a_core_multiplies_at_least_as_fast_as_torch_does():
    """And no faster than any core: 16 lanes, two units, two operations each at 6 GHz."""
    threads = torch.get_num_threads()
    found = most_flops_per_s("cpu", torch.float32)
    assert 1e8 < found < 16 * 2 * 2 * 6e9
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_limit_counts_its_own_operations(dtype):
    """Torch's product as PyTorch itself counts it; multiply-adds of the native layers by their number."""
    found = multiply_limits("cpu", dtype)
    call, flops = found["torch"]
    with FlopCounterMode(display=False) as counter:
        call()
    assert counter.get_total_flops() == flops == 2 * 1024 * 256 * 256
    if "instructions" in found:
        fp32 = multiply_limits("cpu", torch.float32)["instructions"][1]
        assert found["instructions"][1] == (2 * fp32 if dtype == torch.bfloat16 else fp32)


@pytest.mark.skipif(library().code is None, reason="no native layers here")
def test_multiply_adds_alone_are_what_the_instructions_give(one_thread):
    """At least four fifths of what torch's product reaches beside memory, and no faster than any core."""
    rates = {}
    for name, (call, flops) in multiply_limits("cpu", torch.float32).items():
        least = min(timeit.repeat(call, timer=time.thread_time, number=1, repeat=30))
        rates[name] = flops / least
    assert 0.8 * rates["torch"] < rates["instructions"] < 16 * 2 * 2 * 6e9
