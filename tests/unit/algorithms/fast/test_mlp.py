"""The hand-written networks against autograd, and the flat buffers they live in."""

import pytest
import torch
from torch import nn

from spreeze_zmq.algorithms.fast.mlp import Mlp
from spreeze_zmq.algorithms.fast.packing import describe, initialize, num_parameters

MODULES = {"relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "tanh": nn.Tanh}


@pytest.fixture(autouse=True)
def the_same_numbers():
    """One draw in a hundred rounded by more than the tolerance."""
    torch.manual_seed(0)


def make(activation="relu", layer_norm=False, num_networks=2, dtype=torch.float32, num_outputs=3, **options):
    """Networks 5 - 12 - 7 - 3 with parameters of every size, and the same ones in torch's own modules."""
    layers = describe(5, (12, 7), num_outputs, activation, layer_norm)
    flat = initialize(layers, num_networks, torch.Generator().manual_seed(0))
    flat += 0.1 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(1))
    options.setdefault("gradient", torch.zeros_like(flat))
    network = Mlp(layers, flat, num_networks=num_networks, dtype=dtype, **options)
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


def fit(network, x, weight):
    """Fill the gradients of the sum of ``weight`` times the output; the output."""
    networks = []

    def loss_gradient(output, rows, gradient):
        if rows.start == 0:
            first = networks[-1].stop if networks else 0
            networks.append(slice(first, first + len(output)))
        gradient.copy_(weight[networks[-1], rows])

    return network.fit(x, loss_gradient)


@pytest.mark.parametrize("options", [{}, {"by_output": True}, {"block_rows": 4}], ids=str)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("num_networks", [1, 2])
@pytest.mark.parametrize(("num_outputs", "num_rows"), [(3, 6), (1, 6), (1, 1)])
def test_forward_and_backward_equal_autograd(
    activation, layer_norm, num_networks, num_outputs, num_rows, options
):
    """Outputs, gradients of all parameters and gradients of the input."""
    network, peers = make(activation, layer_norm, num_networks, num_outputs=num_outputs, **options)
    before = network.parameters.clone()
    x = torch.randn(num_rows, 5, requires_grad=True)
    weight = torch.randn(num_networks, num_rows, num_outputs)
    outputs = torch.stack([peer(x) for peer in peers])
    torch.testing.assert_close(network.forward(x.detach()), outputs.detach())
    torch.testing.assert_close(fit(network, x.detach(), weight), outputs.detach())
    (outputs * weight).sum().backward()
    gradients = [
        parameter.grad.reshape(-1)
        for parameters in zip(*(peer.parameters() for peer in peers), strict=True)
        for parameter in parameters
    ]
    torch.testing.assert_close(network.gradient, torch.cat(gradients), rtol=1e-5, atol=1e-6)
    assert torch.equal(network.parameters, before)
    still, _ = make(activation, layer_norm, num_networks, num_outputs=num_outputs, gradient=None)
    still.forward(x.detach())
    torch.testing.assert_close(still.input_gradient(weight), x.grad, rtol=1e-5, atol=1e-6)
    assert torch.equal(still.parameters, before)


@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("options", [{}, {"by_output": True}], ids=str)
@pytest.mark.parametrize("num_outputs", [3, 1])
def test_one_network_goes_backward_later_and_adds(activation, layer_norm, num_outputs, options):
    """As a policy does, whose gradient comes through the critics, block for block of a batch."""
    network, peers = make(activation, layer_norm, num_networks=1, num_outputs=num_outputs, **options)
    x, weight = torch.randn(10, 5), torch.randn(1, 10, num_outputs)
    (peers[0](x) * weight[0]).sum().backward()
    for rows in (slice(0, 6), slice(6, 10)):
        network.forward(x[rows])
        network.backward(weight[:, rows], add=rows.start > 0)
    gradients = torch.cat([parameter.grad.reshape(-1) for parameter in peers[0].parameters()])
    torch.testing.assert_close(network.gradient, gradients, rtol=1e-5, atol=1e-5)


def test_the_input_gradient_of_some_columns_alone():
    """An actor needs that of the actions, which are the last of its critics' inputs."""
    layers = describe(5, (12,), 1, "relu")
    flat = initialize(layers, 2, torch.Generator().manual_seed(0))
    whole, part = Mlp(layers, flat, num_networks=2), Mlp(layers, flat, num_networks=2, columns=slice(3, None))
    x, weight = torch.randn(6, 5), torch.randn(2, 6, 1)
    torch.testing.assert_close(whole.forward(x), part.forward(x))
    expected = whole.input_gradient(weight)[:, 3:]
    torch.testing.assert_close(part.input_gradient(weight), expected)


def test_a_network_without_hidden_layers_has_its_weights_as_input_gradient():
    """Times the gradient of its one output, once."""
    flat = torch.tensor([1.0, 2.0, 3.0, 4.0, 0.5, 0.5])  # two of two inputs, then their biases
    network = Mlp(describe(2, (), 1, "relu"), flat, num_networks=2)
    assert network.forward(torch.tensor([[1.0, 1.0]])).flatten().tolist() == [3.5, 7.5]
    weight = torch.tensor([[[2.0]], [[3.0]]])
    assert network.input_gradient(weight).tolist() == [[2.0 + 9.0, 4.0 + 12.0]]


def test_the_input_gradient_leaves_the_parameters_alone():
    """An actor may not move its critics."""
    network, _ = make(gradient=None)
    before = network.parameters.clone()
    network.forward(torch.randn(6, 5))
    network.input_gradient(torch.ones(2, 6, 3))
    assert torch.equal(network.parameters, before)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_weights_of_few_inputs_learn_from_many_rows(layer_norm):
    """The product is turned where activations lie row by row: filled and added to, it gives the gradient of
    all rows.
    """
    layers, x = describe(5, (12,), 3, "relu", layer_norm), torch.randn(1500, 5)
    weight = torch.randn(1, 1500, 3)
    flat = initialize(layers, 1, torch.Generator().manual_seed(0))
    cut, whole = (Mlp(layers, flat, torch.zeros_like(flat), block_rows=rows) for rows in (600, 400))
    for network in (cut, whole):
        fit(network, x, weight)
    torch.testing.assert_close(cut.gradient, whole.gradient, rtol=1e-4, atol=1e-4)
    assert cut.gradient[: 12 * 5].abs().min() > 0.0


def test_what_is_written_in_place_is_not_copied():
    """Rows and gradients may be written where the network reads them."""
    network, _ = make(num_networks=1)
    x, weight = torch.randn(6, 5), torch.randn(1, 6, 3)
    expected = network.forward(x).clone()
    network.backward(weight)
    gradient = network.gradient.clone()
    network.input(6).copy_(x)
    torch.testing.assert_close(network.forward(network.input(6)), expected)
    network.output_gradient(6).copy_(weight)
    network.backward(network.output_gradient(6))
    torch.testing.assert_close(network.gradient, gradient)


@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("num_outputs", [3, 1])
def test_bf16_stays_near_float32(activation, num_outputs):
    """Products in bf16 differ by their rounding only; the relu on the bits is a relu."""
    torch.manual_seed(0)
    exact, _ = make(activation, num_outputs=num_outputs)
    rounded, _ = make(activation, dtype=torch.bfloat16, num_outputs=num_outputs)
    x, weight = torch.randn(64, 5), torch.randn(2, 64, num_outputs)
    torch.testing.assert_close(rounded.forward(x).float(), exact.forward(x), rtol=0.03, atol=0.03)
    fit(exact, x, weight)
    fit(rounded, x, weight)
    difference = (rounded.gradient - exact.gradient).norm() / exact.gradient.norm()
    assert difference < 0.03
    still = [
        make(activation, dtype=dtype, num_outputs=num_outputs, gradient=None)[0]
        for dtype in (torch.float32, torch.bfloat16)
    ]
    for network in still:
        network.forward(x)
    expected, near = (network.input_gradient(weight) for network in still)
    assert (near - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("activation", ["elu", "silu", "tanh"])
def test_bf16_normalises_and_adds_up_many_rows_as_float32(activation):
    """Sums over rows in bf16 would lose what is small beside them. Without relu, whose gradient jumps."""
    exact, _ = make(activation, layer_norm=True)
    rounded, _ = make(activation, layer_norm=True, dtype=torch.bfloat16)
    x, weight = torch.randn(4096, 5), torch.randn(2, 4096, 3)
    for network in (exact, rounded):
        fit(network, x, weight)
    assert (rounded.gradient - exact.gradient).norm() < 0.01 * exact.gradient.norm()


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
