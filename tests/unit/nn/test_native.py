"""Native layers: torch's results, whatever is asked of them under autograd."""

import contextlib
import copy
from itertools import product
from types import MethodType

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from spreeze_zmq import nn
from spreeze_zmq.nn import native_calls, native_layers
from spreeze_zmq.nn.native.library import NativeLibrary, compiled, loaded, runnable
from spreeze_zmq.nn.native_choice import distance, native_parts
from spreeze_zmq.nn.native_layers import LayerRun, NativeConv
from spreeze_zmq.nn.native_sequential import NativeSequential
from tests.pairwise import pairwise

BOTH = frozenset({torch.float32, torch.bfloat16})
ABLE = runnable()


#: Code that multiplies in bf16, by flags of the compiler: as it is here, and with tiles done by hand.
IN_BF16 = {"here": (), "emulated tiles": ("-DSPREEZE_EMULATED_TILES",)} if "AVX512-BF16" in ABLE else {}


@pytest.fixture
def use(monkeypatch):
    """Has the layers computed by code for these instructions, compiled with further flags."""

    def use_code(instructions, extra=()):
        path = compiled(instructions, extra)
        library = NativeLibrary(loaded(path), path.stem, instructions)
        for module in (native_calls, native_layers):
            monkeypatch.setattr(module, "library", lambda: library)

    return use_code


def made_native(module):
    """The module with all of its runs native, whatever is faster."""
    parts = native_parts(module)
    for part in parts:
        part.formats = BOTH
    assert parts, "nothing here can be native"
    return module


def pair(make):
    """A network in torch and the same, native."""
    torch.manual_seed(1)
    network = make()
    return network, made_native(copy.deepcopy(network))


def results(network, x, of_output=None, create_graph=False):
    """Output, gradient of ``x`` and of all parameters."""
    x = x.clone().requires_grad_(True)
    output = network(x)
    if of_output is None:
        of_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(5))
    wanted = [x, *network.parameters()]
    gradients = torch.autograd.grad(output, wanted, of_output.to(output.dtype), create_graph=create_graph)
    return [output, *gradients]


def assert_close(ours, exact, dtype=torch.float32):
    """Within the rounding of float32 sums, or of bf16 factors."""
    error = distance([each.detach() for each in ours], [each.detach() for each in exact])
    assert error < (2e-5 if dtype == torch.float32 else 2e-2), error


SIZES = [(17, 256, 256, 1), (1, 3, 1), (23, 64, 101, 12), (40, 33, 33, 33, 37)]
#: One layer, whose size meets no activation and no norm.
ALONE = ((5, 7), "relu", False)


@pytest.mark.parametrize(
    ("instructions", "num", "sizes", "activation", "layer_norm"),
    pairwise(ABLE, [0, 1, 3], SIZES, nn.ACTIVATIONS, [False, True])
    + [(*case, *ALONE) for case in product(ABLE, [0, 1, 3])],
    ids=str,
)
def test_every_layer_agrees_with_float64_autograd(use, instructions, num, sizes, activation, layer_norm):
    """Outputs, input gradients and parameter gradients, for one row, some and several blocks of them, by
    every kind of code that this processor can run.
    """
    use(instructions)

    def make():
        network = nn.mlp(sizes, activation, layer_norm)
        return nn.ensemble(num, lambda: nn.mlp(sizes, activation, layer_norm)) if num else network

    network, ours = pair(make)
    for rows in (1, 6, 31, 300):
        x = torch.randn(rows, sizes[0], generator=torch.Generator().manual_seed(rows))
        exact = results(copy.deepcopy(network).double(), x.double())
        assert_close(results(ours, x), exact)


@pytest.mark.parametrize(
    ("kind", "sizes", "activation", "layer_norm"),
    pairwise(IN_BF16, [*SIZES[2:], (24, 256, 256, 1)], nn.ACTIVATIONS, [False, True])
    + [(kind, *ALONE) for kind in IN_BF16],
    ids=str,
)
@pytest.mark.long("the first case of each kind of code compiles it")
def test_bf16_is_as_near_as_its_rounding_allows(use, kind, sizes, activation, layer_norm):
    """Under autocast, by each kind of code in bf16 that this processor can run; no farther from float64 than
    twice what torch's own bf16 is.
    """
    use("AVX512-BF16" if IN_BF16[kind] else ABLE[0], IN_BF16[kind])
    network, ours = pair(lambda: nn.ensemble(2, lambda: nn.mlp(sizes, activation, layer_norm)))
    for rows in (1, 31, 300):
        x = torch.randn(rows, sizes[0], generator=torch.Generator().manual_seed(rows))
        exact = results(copy.deepcopy(network).double(), x.double())
        with torch.autocast("cpu", torch.bfloat16):
            found, theirs = results(ours, x), results(network, x)
        assert found[0].dtype == torch.float32
        for mine, other, right in zip(found, theirs, exact, strict=True):
            assert distance([mine], [right]) <= max(1e-2, 2.0 * distance([other], [right]))


IMAGES = {
    "small": (lambda: nn.cnn((4, 42, 42), 6, nn.CONVOLUTIONS["small_cnn"]), 4 * 42 * 42),
    "nature, norms": (
        lambda: nn.cnn((3, 37, 44), 5, nn.CONVOLUTIONS["nature_cnn"], layer_norm=True),
        3 * 37 * 44,
    ),
    "one filter of one pixel": (lambda: torch.nn.Sequential(nn.Conv((1, 1, 1), 1, 1, 1)), 1),
    "odd": (
        lambda: torch.nn.Sequential(
            nn.Conv((5, 13, 9), 19, 3, 2), torch.nn.ReLU(), nn.Conv((19, 6, 4), 33, 2, 3)
        ),
        5 * 13 * 9,
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_convolutions_agree_with_float64_autograd(use, name):
    """Outputs, gradients of images and of parameters; also for gradients that are views, and again; by every
    kind of code that this processor can run.
    """
    make, size = IMAGES[name]
    network, _ = pair(make)
    exact = convolved(copy.deepcopy(network).double(), size, torch.float64)
    for instructions in ABLE:
        use(instructions)
        ours = made_native(copy.deepcopy(network))
        assert any(isinstance(step, NativeConv) for step in ours.steps())
        for found, right in zip(convolved(ours, size, torch.float32), exact, strict=True):
            assert_close(found, right)


def test_gradients_of_a_convolution_are_sums_in_the_order_of_images_and_places(use):
    """To the bit by every kind of code. Pixels are powers of two, so that products are exact."""
    layer, source = nn.Conv((2, 9, 11), 35, 3, 2), np.random.default_rng(1)
    x = torch.from_numpy(2.0 ** source.integers(-3, 3, (4, layer.input_size))).float()
    of_y = torch.from_numpy(source.standard_normal((4, layer.output_size))).float()
    patches = torch.nn.functional.unfold(x.reshape(-1, *layer.shape), 3, stride=2)[:, None]
    products = (of_y.reshape(4, 35, 1, -1) * patches).permute(0, 3, 1, 2).flatten(0, 1).numpy()
    of_outputs = of_y.reshape(4, 35, -1).permute(0, 2, 1).flatten(0, 1).numpy()
    for instructions in ABLE:
        use(instructions)
        layer.zero_grad()
        NativeConv(layer)(x, bf16=False).backward(of_y)
        for parameter, terms in ((layer.weight, products), (layer.bias, of_outputs)):
            expected = np.add.accumulate(terms)[-1]
            assert np.array_equal(parameter.grad.reshape(expected.shape), expected)


def convolved(network, size, dtype):
    """Results for several rows, for views, and gradients of a gradient."""
    found, width = [], network(torch.zeros(1, size, dtype=dtype)).shape[1]
    for rows in (1, 7, 33):
        x = torch.randn(rows, size, generator=torch.Generator().manual_seed(rows))
        found.append(
            results(
                network, x.to(dtype), torch.randn(rows, width, generator=torch.Generator().manual_seed(5))
            )
        )
    for kind in AWKWARD:
        x = awkward(kind, 5, size).to(dtype)
        found.append(results(network, x, awkward(kind, 5, width).to(dtype)))
    x = x.T.contiguous().T.requires_grad_(True)
    (slope,) = torch.autograd.grad(network(x).square().sum(), network[0].weight, create_graph=True)
    return [*found, torch.autograd.grad(slope.square().sum(), [x, network[0].weight])]


def awkward(kind, rows, size):
    """``[rows, size]`` that is not in one piece."""
    source = torch.Generator().manual_seed(3)
    if kind == "transposed":
        return torch.randn(size, rows, generator=source).T
    if kind == "expanded rows":
        return torch.randn(1, size, generator=source).expand(rows, size)
    if kind == "expanded columns":
        return torch.randn(rows, 1, generator=source).expand(rows, size)
    if kind == "every other":
        return torch.randn(2 * rows, 2 * size, generator=source)[::2, ::2]
    return torch.randn(rows, size + 3, generator=source)[:, 3:]


AWKWARD = ("transposed", "expanded rows", "expanded columns", "every other", "cut")


@pytest.mark.parametrize("kind", AWKWARD)
def test_strides_of_inputs_and_gradients_are_heeded(kind):
    """What autograd hands over is often a view."""
    network, ours = pair(lambda: nn.mlp((6, 40, 5), "tanh", layer_norm=True))
    x, of_output = awkward(kind, 33, 6), awkward(kind, 33, 5)
    assert_close(results(ours, x, of_output), results(network, x, of_output))
    both, ours = pair(lambda: nn.ensemble(2, lambda: nn.mlp((6, 40, 5))))
    stacked = torch.stack((of_output, 2.0 * of_output)).transpose(1, 2).contiguous().transpose(1, 2)
    assert_close(results(ours, x, stacked), results(both, x, stacked))


def test_each_network_of_an_ensemble_can_have_rows_of_its_own():
    """Its layers take ``[E, B, in]``, whether these are one row block expanded or several."""
    network, ours = pair(lambda: nn.ensemble(3, lambda: nn.mlp((4, 20, 2), "silu")))
    x = torch.randn(3, 9, 4)
    assert_close(results(ours.layers, x), results(network.layers, x))
    assert_close(
        results(ours.layers, x.transpose(0, 1).contiguous().transpose(0, 1)), results(network.layers, x)
    )


def gradients_after(network, loss_of):
    """Of all parameters, after a backward pass; zeros where there is none."""
    loss_of(network).backward()
    return [torch.zeros(1) if each.grad is None else each.grad.clone() for each in network.parameters()]


def test_a_module_can_be_used_several_times_within_one_loss():
    """As a critic of two actions; the gradients add up, also to what a buffer held before."""
    x, y = torch.randn(12, 6), torch.randn(7, 6)

    def loss(network):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        return network(x).square().sum() + (network(y).exp() * network(x)[:7].detach()).sum()

    network, ours = pair(lambda: nn.mlp((6, 30, 6)))
    assert_close(gradients_after(ours, loss), gradients_after(network, loss))

    def chained(network):
        return network(network(x).tanh()).square().mean()

    assert_close(gradients_after(ours, chained), gradients_after(network, chained))


@pytest.mark.parametrize("bf16", [False, "AVX512-BF16" in ABLE])
def test_a_backward_pass_may_add_to_the_gradients_itself(bf16):
    """The same sums, over several uses, several blocks and what a buffer held before; frozen ones stay."""
    x, y = torch.randn(300, 6), torch.randn(7, 6)

    def gradients(network, into):
        for number, parameter in enumerate(network.parameters()):
            parameter.grad = torch.ones_like(parameter)
            parameter.requires_grad_(number != 2)
        rows = x.clone().requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = network(rows).square().mean() + network(y).sum()
        with nn.into_grad() if into else contextlib.nullcontext():
            loss.backward()
        return [rows.grad, *(parameter.grad for parameter in network.parameters())]

    _, ours = pair(lambda: nn.ensemble(2, lambda: nn.mlp((6, 30, 30, 1), layer_norm=True)))
    apart, added = gradients(ours, False), gradients(ours, True)
    assert torch.equal(added[3], torch.ones_like(added[3]))
    assert_close(added, apart)


def test_a_hook_or_a_missing_buffer_leaves_gradients_to_torch():
    """Hooks see the gradient that they asked for."""
    _, ours = pair(lambda: nn.mlp((6, 30, 2)))
    seen = []
    ours[0].weight.register_hook(lambda gradient: seen.append(gradient.shape))
    with nn.into_grad():
        ours(torch.randn(9, 6)).sum().backward()
    assert seen == [(30, 6)]
    assert all(parameter.grad.abs().sum() > 0 for parameter in ours.parameters())
    with nn.into_grad():
        ours(torch.randn(9, 6)).sum().backward()
    assert len(seen) == 2


def test_without_gradients_there_is_no_graph():
    """And the same numbers, in ``no_grad``, ``inference_mode``, and where nothing is trained."""
    network, ours = pair(lambda: nn.mlp((6, 30, 30, 2), "silu", layer_norm=True))
    x, expected = torch.randn(40, 6), network(torch.randn(1, 6)).shape
    assert expected == (1, 2)
    with torch.no_grad():
        quiet = ours(x)
    assert not quiet.requires_grad
    assert torch.equal(quiet, ours(x).detach())
    with torch.inference_mode():
        assert torch.equal(ours(x), quiet)
    assert not ours.requires_grad_(False)(x).requires_grad
    assert_close([quiet], [network(x)])


def test_frozen_parameters_get_no_gradient_and_still_pass_one_on():
    """As the critics in a policy's loss, and as one frozen layer among others."""
    network, ours = pair(lambda: nn.mlp((6, 30, 30, 2), layer_norm=True))
    x = torch.randn(40, 6)
    for frozen in (range(0, 10), (0, 3), (4,), (2, 9)):
        found = []
        for each in (network, ours):
            for number, parameter in enumerate(each.parameters()):
                parameter.requires_grad_(number not in frozen)
                parameter.grad = None
            rows = x.clone().requires_grad_(True)
            found.append(
                [*gradients_after(each, lambda each, rows=rows: each(rows).square().sum()), rows.grad]
            )
            assert all(
                (parameter.grad is None) == (not parameter.requires_grad) for parameter in each.parameters()
            )
        assert_close(found[1], found[0])


def test_gradients_can_be_differentiated_again():
    """A gradient penalty: the second pass is torch's own."""
    network, ours = pair(lambda: nn.mlp((6, 30, 1), "tanh"))
    x = torch.randn(20, 6)

    def penalty(network):
        rows = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(network(rows).sum(), rows, create_graph=True)
        return (slope.square().sum(1) - 1.0).square().mean()

    assert_close(gradients_after(ours, penalty)[:1], gradients_after(network, penalty)[:1])


def test_a_changed_weight_between_the_passes_is_noticed():
    """As torch does: a wrong gradient would be silent."""
    _, ours = pair(lambda: nn.mlp((6, 30, 1)))
    out = ours(torch.randn(3, 6)).sum()
    with torch.no_grad():
        ours[0].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_a_graph_that_is_kept_gives_the_same_again():
    """``retain_graph``; a second pass without it is refused."""
    _, ours = pair(lambda: nn.mlp((6, 30, 1), "silu", layer_norm=True))
    out = ours(torch.randn(300, 6)).square().sum()
    first = torch.autograd.grad(out, list(ours.parameters()), retain_graph=True)
    again = torch.autograd.grad(out, list(ours.parameters()))
    assert all(torch.equal(*both) for both in zip(first, again, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, list(ours.parameters()))


def test_not_a_number_is_passed_on():
    """So that a loss that is none is noticed."""
    for activation in nn.ACTIVATIONS:
        _, ours = pair(lambda activation=activation: nn.mlp((2, 8, 8, 1), activation))
        out = ours(torch.tensor([[float("nan"), 0.0], [1.0, 1.0]]))
        assert out.isnan().tolist() == [[True], [False]]


def test_equal_inputs_give_equal_bits():
    """Lock-step runs on one machine rest on it, after calls of other sizes too."""
    _, ours = pair(lambda: nn.ensemble(2, lambda: nn.mlp((9, 50, 50, 3), "elu", layer_norm=True)))
    x = torch.randn(300, 9)
    first = results(ours, x)
    results(ours, torch.randn(1000, 9))
    assert all(torch.equal(*both) for both in zip(first, results(ours, x), strict=True))


class Doubled(torch.nn.Linear):
    """Does not do what its base class does."""

    def forward(self, x):
        """Twice as much."""
        return 2.0 * super().forward(x)


def negated(layer):
    """One whose ``forward`` is its own."""
    layer.forward = MethodType(lambda self, x: -torch.nn.Linear.forward(self, x), layer)
    return layer


@pytest.mark.parametrize(
    ("layers", "runs"),
    [
        ([torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)], 2),
        ([torch.nn.Linear(4, 8), torch.nn.ReLU(), Doubled(8, 8), torch.nn.Linear(8, 2)], 2),
        ([torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 2)], 1),
        ([torch.nn.Linear(4, 8), torch.nn.ELU(alpha=0.5), torch.nn.Linear(8, 2)], 2),
        ([torch.nn.Linear(4, 8), torch.nn.LayerNorm(8, elementwise_affine=False), torch.nn.Linear(8, 2)], 2),
        ([torch.nn.ReLU(), torch.nn.Linear(4, 2), torch.nn.Tanh()], 1),
        ([negated(torch.nn.Linear(4, 8)), torch.nn.Tanh(), torch.nn.Linear(8, 2)], 1),
        ([torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)], 2),
        ([torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2), nn.Append(2, 0.5)], 1),
        ([torch.nn.Linear(4, 8), torch.nn.Linear(8, 6), nn.Dueling(2, 2)], 1),
    ],
    ids=lambda value: "-".join(type(layer).__name__ for layer in value) if isinstance(value, list) else "",
)
def test_other_layers_stay_as_they_are(layers, runs):
    """Between native runs, with torch's results."""
    network, ours = pair(lambda: torch.nn.Sequential(*layers))
    assert sum(isinstance(step, LayerRun) for step in ours.steps()) == runs
    x = torch.randn(10, 4)
    assert_close(results(ours, x), results(network, x))


def test_what_is_watched_or_of_another_kind_stays_with_torch():
    """Other formats, no rows, counted or batched operations, wrong sizes: torch's results, and its errors."""
    network, ours = pair(lambda: nn.mlp((4, 8, 2)))
    assert ours(torch.empty(0, 4)).shape == (0, 2)
    assert ours(torch.randn(4)).shape == (2,)
    assert_close([ours(torch.ones(2, 3, 4))], [network(torch.ones(2, 3, 4))])
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        ours(torch.randn(2, 5))
    x = torch.randn(5, 4)
    assert_close([torch.vmap(ours)(x)], [network(x)])
    with FlopCounterMode(display=False) as counter:
        ours(x)
    assert counter.get_total_flops() == 2 * 5 * (4 * 8 + 8 * 2)
    assert ours.double()(x.double()).dtype == torch.float64


def narrowed(layer):
    """Its parameters become bf16."""
    layer.bfloat16()


def with_fewer(layer):
    """Its weight becomes one of another shape."""
    layer.weight = torch.nn.Parameter(layer.weight[:-1].detach().clone())


def turned(layer):
    """Its weight's numbers come to lie in memory in another order."""
    layer.weight.data = layer.weight.detach().transpose(0, 1).contiguous().transpose(0, 1)


def outcome(network, x):
    """What the network makes of rows with and without autocast: the output, or the kind of error."""
    found = []
    for autocast in (False, True):
        try:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                found.append(network(x).float())
        except RuntimeError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("change", [narrowed, with_fewer, turned])
@pytest.mark.parametrize("at", [0, -2, -1], ids=["convolution", "hidden", "last"])
def test_parameters_that_changed_their_form_are_not_read_as_they_were(at, change):
    """A native call was made before; torch does what it does with them, or says what is wrong."""
    plain, fast = pair(lambda: nn.cnn((4, 42, 42), 6, nn.CONVOLUTIONS["small_cnn"]))
    x = torch.randn(6, 4 * 42 * 42)
    outcome(fast, x)
    for network in (plain, fast):
        layers = [part for part in network.modules() if hasattr(part, "weight")]
        change(layers[at])
    for ours, theirs in zip(outcome(fast, x), outcome(plain, x), strict=True):
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs, rtol=0.03, atol=0.03)


def test_layers_that_come_later_are_found():
    """As a policy's that gets its log standard deviations after it was made."""
    _, ours = pair(lambda: nn.mlp((4, 8, 2)))
    ours(torch.ones(1, 4))
    ours.append(nn.Append(3, 0.25))
    assert ours(torch.ones(2, 4))[:, 2:].tolist() == [[0.25] * 3] * 2
    again = copy.deepcopy(ours)
    with torch.no_grad():
        again[0].weight.zero_()
    assert not torch.equal(again(torch.ones(1, 4)), ours(torch.ones(1, 4)))
    assert isinstance(again, NativeSequential)
