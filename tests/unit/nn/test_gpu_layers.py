"""Runs of layers as a GPU computes them; their products are of any device, so that a CPU shows them too."""

import pytest
import torch

from spreeze_zmq import nn
from spreeze_zmq.nn import gpu_layers
from spreeze_zmq.nn.native_calls import NativeFunction
from spreeze_zmq.nn.native_layers import LayerRun
from spreeze_zmq.nn.native_sequential import NativeSequential, split

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = 40
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def distance(mine, exact):
    """The largest distance of tensors, relative to the exact ones."""
    pairs = zip(mine, exact, strict=True)
    return max(
        float((one.cpu() - other.cpu()).norm() / other.cpu().norm().clamp(min=1e-9)) for one, other in pairs
    )


def found(run, x, compute):
    """The output, and the gradients of a sum over it for the rows and for each parameter."""
    for parameter in run.parameters():
        parameter.grad = torch.zeros_like(parameter)
    leaf = (x[0] if x.stride(0) == 0 else x).detach().clone().requires_grad_()
    output = compute(leaf.expand(x.shape))
    with nn.into_grad():
        output.square().sum().backward()
    return [output.detach(), leaf.grad, *(parameter.grad for parameter in run.parameters())]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("long", [False, True], ids=["batch", "one by one"])
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("stacked", ["alone", "stacked", "shared"])
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("activation", ["relu", "elu", "silu", "tanh"])
def test_outputs_and_gradients_are_those_of_torchs_layers(
    monkeypatch, activation, norm, stacked, bf16, long, device
):
    """Of widths that tensor cores take and others; in bf16 as near as torch's own rounding comes."""
    torch.manual_seed(0)
    monkeypatch.setattr(gpu_layers, "LONG", 0 if long else ROWS)
    for sizes in ((23, 64, 32, 1), (16, 36, 12)):
        layers = nn.mlp(sizes, activation, norm)
        if stacked != "alone":
            layers = nn.ensemble(2, lambda sizes=sizes: nn.mlp(sizes, activation, norm)).layers
        (run,) = split(list(layers.to(device)))
        assert isinstance(run, LayerRun)
        x = torch.randn(2, ROWS, sizes[0], device=device)
        x = {"alone": x[0], "stacked": x, "shared": x[0].expand(x.shape)}[stacked]

        def by_torch(x, rounded, run=run):
            with torch.autocast(device, torch.bfloat16, enabled=rounded):
                return run.in_torch(x).float()

        def ours(x, run=run):
            return NativeFunction.apply(run._gpu_calls[bf16], x, *run.parameters())

        exact = found(run, x, lambda x, by_torch=by_torch: by_torch(x, False))
        allowed = (
            2.0 * distance(found(run, x, lambda x, by_torch=by_torch: by_torch(x, True)), exact)
            if bf16
            else 1e-5
        )
        assert distance(found(run, x, ours), exact) <= allowed


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", ["run", "torch", "sequential"])
@pytest.mark.parametrize("num", [0, 2])
def test_values_of_hundreds_differ_by_less_than_bf16_tells_apart(num, way, device):
    """The values of a policy that is worth 600 are not one number, whoever computes them in bf16; a bias
    that moves by a hundredth moves them.
    """
    torch.manual_seed(0)
    layers = nn.mlp((23, 64, 1)) if not num else nn.ensemble(num, lambda: nn.mlp((23, 64, 1))).layers
    with torch.no_grad():
        layers[-1].bias.fill_(600.01)
    (run,) = split(list(layers.to(device)))
    x = torch.randn(ROWS, 23, device=device).expand(*([num] if num else []), ROWS, 23)
    exact = run.in_torch(x)
    sequential = torch.nn.Sequential(*layers)
    sequential.__class__ = NativeSequential
    ways = {
        "run": lambda: run._gpu_calls[True].forward(x, *run.parameters())[0],
        "torch": lambda: run.in_torch(x),
        "sequential": lambda: sequential(x),
    }
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        found = ways[way]()
    assert found.dtype == torch.float32
    assert found.unique().numel() > 0.9 * exact.unique().numel()
    assert (found - exact).abs().max() < 0.005


@pytest.mark.parametrize("kind", [torch.nn.SiLU, torch.nn.ReLU, torch.nn.ELU])
def test_an_activation_that_works_in_place_leaves_what_is_kept(kind):
    """Its derivative needs what it would write over."""
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(8)
    (run,) = split([torch.nn.Linear(8, 8), norm, kind(inplace=True), torch.nn.Linear(8, 1)])
    x = torch.randn(ROWS, 8)
    exact = found(run, x, run.in_torch)
    ours = found(run, x, lambda x: NativeFunction.apply(run._gpu_calls[False], x, *run.parameters()))
    assert distance(ours, exact) < 1e-5


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.SiLU, torch.nn.ReLU, None])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("width", [1, 7, 16, 30])
def test_a_layer_of_any_width_may_have_nothing_behind_it(width, norm, kind, bf16):
    """Its gradient has no column of the zeros that the next layer's factors are filled up with."""
    torch.manual_seed(0)
    between = [torch.nn.LayerNorm(width)] * norm + ([] if kind is None else [kind()])
    (run,) = split([torch.nn.Linear(4, width), *between, torch.nn.Linear(width, 2)])
    x = torch.randn(ROWS, 4)
    exact = found(run, x, run.in_torch)
    ours = found(run, x, lambda x: NativeFunction.apply(run._gpu_calls[bf16], x, *run.parameters()))
    assert [each.shape for each in ours] == [each.shape for each in exact]
    if width > 1:
        assert distance(ours, exact) < (0.2 if bf16 else 1e-5)


def test_no_column_is_left_that_tensor_cores_do_not_take():
    """Zeros follow the numbers, and what has the width stays as it is."""
    rows = torch.arange(6.0).view(2, 3)
    filled = gpu_layers.padded(rows, torch.bfloat16)
    assert filled.shape == (2, 8)
    assert filled[:, :3].equal(rows.bfloat16())
    assert not filled[:, 3:].any()
    wide = torch.ones(2, 8)
    assert gpu_layers.padded(wide, torch.float32) is wide


@pytest.mark.parametrize("activation", [torch.nn.Tanh(), torch.nn.ReLU(), None])
def test_the_output_may_be_changed_in_place(activation):
    """As that of any layer; the gradients are those of what was computed."""
    torch.manual_seed(0)
    run = LayerRun([torch.nn.Linear(5, 6), *filter(None, [activation])])
    x = torch.randn(7, 5, requires_grad=True)
    mine = NativeFunction.apply(run._gpu_calls[0], x, *run.parameters()).mul_(2.0).sub_(0.7)
    exact = run.in_torch(x) * 2.0 - 0.7
    mine, exact = (torch.autograd.grad(each.square().sum(), x)[0] for each in (mine, exact))
    assert torch.allclose(mine, exact, atol=1e-5)


def test_a_norm_goes_back_through_the_weight_that_it_came_with():
    """Another one may have taken its place since, as of ``torch.func.functional_call``."""
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(6)
    run = LayerRun([torch.nn.Linear(5, 6), norm, torch.nn.Tanh()])
    x = torch.randn(7, 5, requires_grad=True)
    outputs = NativeFunction.apply(run._gpu_calls[0], x, *run.parameters()), run.in_torch(x)
    norm.weight = torch.nn.Parameter(torch.full((6,), 3.0))
    mine, exact = (torch.autograd.grad(each.square().sum(), x)[0] for each in outputs)
    assert torch.allclose(mine, exact, atol=1e-5)
