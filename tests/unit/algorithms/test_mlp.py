"""The hand-written networks against autograd, and the flat buffers they live in."""

import pytest
import torch
from torch import nn

from spreeze_zmq.algorithms.mlp import Mlp, describe, initialize, num_parameters

MODULES = {"relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "tanh": nn.Tanh}


@pytest.fixture(autouse=True)
def the_same_numbers():
    """One draw in a hundred rounded by more than the tolerance."""
    torch.manual_seed(0)


def make(activation="relu", layer_norm=False, num_networks=2, dtype=torch.float32):
    """Networks 5 - 12 - 7 - 3 with parameters of every size, and the same ones in torch's own modules."""
    layers = describe(5, (12, 7), 3, activation, layer_norm)
    flat = initialize(layers, num_networks, torch.Generator().manual_seed(0))
    flat += 0.1 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(1))
    network = Mlp(layers, flat, torch.zeros_like(flat), num_networks, dtype)
    peers = []
    for _ in range(num_networks):
        modules = []
        for layer in layers:
            if layer["kind"] == "linear":
                modules.append(nn.Linear(layer["in"], layer["out"]))
            elif layer["kind"] == "layer_norm":
                modules.append(nn.LayerNorm(layer["size"], eps=layer["eps"]))
            else:
                modules.append(MODULES[layer["kind"]]())
        peers.append(nn.Sequential(*modules))
    # Packing is layer by layer, and within a layer network by network.
    offset = 0
    for parameters in zip(*(peer.parameters() for peer in peers), strict=True):
        for parameter in parameters:
            parameter.data = flat[offset : offset + parameter.numel()].view(parameter.shape).clone()
            offset += parameter.numel()
    assert offset == num_parameters(layers, num_networks) == len(flat)
    return network, peers


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("num_networks", [1, 2])
def test_forward_and_backward_equal_autograd(activation, layer_norm, num_networks):
    """Outputs, gradients of all parameters and gradients of the input."""
    network, peers = make(activation, layer_norm, num_networks)
    x = torch.randn(6, 5, requires_grad=True)
    weight = torch.randn(num_networks, 6, 3)
    outputs = torch.stack([peer(x) for peer in peers])
    torch.testing.assert_close(network.forward(x.detach()), outputs.detach())
    network.backward(weight.clone())
    (outputs * weight).sum().backward()
    gradients = [
        parameter.grad.reshape(-1)
        for parameters in zip(*(peer.parameters() for peer in peers), strict=True)
        for parameter in parameters
    ]
    torch.testing.assert_close(network.gradient, torch.cat(gradients), rtol=1e-5, atol=1e-6)
    network.forward(x.detach())
    network.backward(2.0 * weight, add=True)
    torch.testing.assert_close(network.gradient, 3.0 * torch.cat(gradients), rtol=1e-5, atol=1e-5)
    network.forward(x.detach())
    torch.testing.assert_close(network.input_gradient(weight.clone()).sum(0), x.grad, rtol=1e-5, atol=1e-6)


def test_the_input_gradient_of_some_columns_alone():
    """An actor needs that of the actions, which are the last of its critics' inputs."""
    layers = describe(5, (12,), 1, "relu")
    flat = initialize(layers, 2, torch.Generator().manual_seed(0))
    whole, part = Mlp(layers, flat, num_networks=2), Mlp(layers, flat, num_networks=2, columns=slice(3, None))
    x, weight = torch.randn(6, 5), torch.randn(2, 6, 1)
    torch.testing.assert_close(whole.forward(x), part.forward(x))
    expected = whole.input_gradient(weight)[:, :, 3:]
    torch.testing.assert_close(part.input_gradient(weight), expected)


def test_the_input_gradient_leaves_the_parameters_alone():
    """An actor may not move its critics."""
    network, _ = make()
    network.forward(torch.randn(6, 5))
    network.input_gradient(torch.ones(2, 6, 3))
    assert network.gradient.abs().sum() == 0.0


@pytest.mark.parametrize("activation", MODULES)
def test_bf16_stays_near_float32(activation):
    """Products in bf16 differ by their rounding only; the relu on the bits is a relu."""
    torch.manual_seed(0)
    exact, _ = make(activation)
    rounded, _ = make(activation, dtype=torch.bfloat16)
    x, weight = torch.randn(64, 5), torch.randn(2, 64, 3)
    torch.testing.assert_close(rounded.forward(x).float(), exact.forward(x), rtol=0.03, atol=0.03)
    exact.backward(weight.clone())
    rounded.backward(weight.to(torch.bfloat16))
    difference = (rounded.gradient - exact.gradient).norm() / exact.gradient.norm()
    assert difference < 0.03


def test_a_change_of_the_flat_buffer_is_a_change_of_the_network():
    """After ``refresh``, in bf16 as in float32."""
    for dtype in (torch.float32, torch.bfloat16):
        network, _ = make(dtype=dtype)
        before = network.forward(torch.ones(1, 5)).clone()
        network.parameters.zero_()
        network.refresh()
        assert before.abs().sum() > 0.0
        assert network.forward(torch.ones(1, 5)).abs().sum() == 0.0


def test_another_batch_size_gets_its_own_buffers():
    """Sizes may change from call to call."""
    network, peers = make()
    for size in (4, 9, 4):
        x = torch.randn(size, 5)
        expected = torch.stack([peer(x) for peer in peers]).detach()
        torch.testing.assert_close(network.forward(x), expected)


def test_first_weights_follow_the_seed():
    """The same generator state gives the same network, and the last layer is scaled."""
    layers = describe(5, (8,), 3, "relu")
    first, again, small = (
        initialize(layers, 1, torch.Generator().manual_seed(4), scale) for scale in (1.0, 1.0, 0.01)
    )
    assert torch.equal(first, again)
    last = 8 * 3 + 3
    assert torch.equal(first[:-last], small[:-last])
    torch.testing.assert_close(first[-last:] * 0.01, small[-last:])
    assert first[: 5 * 8].abs().max() <= 5**-0.5
