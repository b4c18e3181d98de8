"""The networks: shapes, first weights, descriptions that numpy can follow, and targets."""

import copy
import math

import numpy as np
import pytest
import torch

from spreeze_zmq import nn


def packed(network):
    """All parameters in one flat array."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()]).numpy()


def fill(network, *values):
    """Set each parameter to numbers given row by row."""
    with torch.no_grad():
        for parameter, numbers in zip(network.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(numbers).view(parameter.shape))
    return network


def test_a_perceptron_starts_within_one_over_the_root_of_its_inputs():
    """Weights and biases alike; the last layer is scaled down."""
    torch.manual_seed(0)
    network = nn.mlp((100, 64, 2), output_scale=0.01)
    first, last = network[0], network[2]
    for layer, bound in ((first, 1 / 10), (last, 0.01 / 8)):
        for parameter in (layer.weight, layer.bias):
            assert parameter.abs().max() <= bound
        assert layer.weight.abs().max() > 0.9 * bound
    assert isinstance(network[1], torch.nn.ReLU)


def test_the_same_seed_makes_the_same_network():
    """Both halves of a run start from the same weights."""
    networks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        networks.append(packed(nn.mlp((3, 4, 2))))
    assert np.array_equal(networks[0], networks[1])
    assert not np.array_equal(networks[0], networks[2])


def test_a_convolution_of_a_ramp_by_hand():
    """Two channels of 3 x 3, one filter of 2 x 2 and stride 1: sums of patches, plus the bias."""
    layer = nn.Conv((2, 3, 3), out=1, kernel=2, stride=1)
    fill(layer, [1.0, 1.0, 1.0, 1.0, 10.0, 0.0, 0.0, 0.0], [0.5])
    row = torch.arange(18.0).view(1, 18)
    assert layer.output_shape == (1, 2, 2)
    assert layer.output_size == 4
    # First channel: sums 0+1+3+4 = 8, 12, 20, 24; second: ten times 9, 10, 12, 13.
    assert layer(row).tolist() == [[98.5, 112.5, 140.5, 154.5]]


def test_a_stride_skips_and_the_rest_is_cut_off():
    """Of 5 x 6 with filters of 2 and stride 2 remain 2 x 3."""
    layer = nn.Conv((1, 5, 6), out=4, kernel=2, stride=2)
    assert layer.output_shape == (4, 2, 3)
    assert layer(torch.zeros(7, 30)).shape == (7, 24)


def test_an_image_smaller_than_the_filter_is_refused():
    """With both sizes in the message."""
    with pytest.raises(ValueError, match="4 x 3 is smaller than a filter of 4 x 4"):
        nn.Conv((1, 4, 3), out=1, kernel=4, stride=1)


def test_appended_numbers_are_the_same_in_every_row_and_learn():
    """A log standard deviation that does not depend on the state."""
    layer = nn.Append(2, -0.5)
    out = layer(torch.tensor([[1.0], [2.0]]))
    assert out.tolist() == [[1.0, -0.5, -0.5], [2.0, -0.5, -0.5]]
    out.sum().backward()
    assert layer.value.grad.tolist() == [2.0, 2.0]


def test_dueling_subtracts_the_mean_advantage():
    """Equation 9, by hand: value 10, advantages 1, 2 and 6 of mean 3; atoms stay apart."""
    assert nn.Dueling(3)(torch.tensor([[10.0, 1.0, 2.0, 6.0]])).tolist() == [[8.0, 9.0, 13.0]]
    out = nn.Dueling(2, atoms=2)(torch.tensor([[10.0, 20.0, 1.0, 2.0, 3.0, 6.0]]))
    assert out.tolist() == [[9.0, 18.0, 11.0, 22.0]]


def test_a_constant_number_is_not_trained():
    """It has no parameter; a learned one has a 0-d one."""
    assert [parameter.shape for parameter in nn.Number(2.0).parameters()] == [()]
    constant = nn.Number(2.0, learned=False)
    assert list(constant.parameters()) == []
    assert constant().item() == 2.0


@pytest.mark.parametrize("activation", nn.ACTIVATIONS)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_an_ensemble_is_its_networks_side_by_side(activation, layer_norm):
    """On the same rows, forward and backward."""
    made = []

    def make():
        made.append(nn.mlp((3, 8, 6, 2), activation, layer_norm))
        return made[-1]

    together, x = nn.ensemble(2, make), torch.randn(5, 3)
    out, expected = together(x), torch.stack([network(x) for network in made])
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    singles = zip(*(network.parameters() for network in made), strict=True)
    for parameter, pair in zip(together.parameters(), singles, strict=True):
        torch.testing.assert_close(parameter.grad, torch.stack([each.grad for each in pair]))


def test_an_ensemble_refuses_a_layer_that_it_cannot_stack():
    """Instead of sharing its parameters among the networks."""
    with pytest.raises(ValueError, match="cannot hold Conv"):
        nn.ensemble(2, lambda: torch.nn.Sequential(nn.Conv((1, 4, 4), 1, 2, 1)))


def test_the_nature_network_takes_84_by_84():
    """3,136 numbers come out of the last convolution (the paper's 7 x 7 x 64)."""
    network = nn.cnn((4, 84, 84), 6)
    assert network(torch.zeros(2, 4 * 84 * 84)).shape == (2, 6)
    assert network[6].in_features == 3136
    assert [layer["kind"] for layer in nn.describe(network)] == ["conv2d", "relu"] * 3 + [
        "linear",
        "relu",
        "linear",
    ]


def test_a_description_has_every_layer_in_the_order_of_the_parameters():
    """As the policy message carries it."""
    network = torch.nn.Sequential(
        nn.Conv((1, 3, 3), 2, 2, 1), *nn.mlp((8, 4, 3), "tanh", layer_norm=True), nn.Append(3, 0.0)
    )
    assert nn.describe(network) == [
        {"kind": "conv2d", "shape": [1, 3, 3], "out": 2, "kernel": 2, "stride": 1},
        {"kind": "linear", "in": 8, "out": 4},
        {"kind": "layer_norm", "size": 4, "eps": 1e-5},
        {"kind": "tanh"},
        {"kind": "linear", "in": 4, "out": 3},
        {"kind": "append", "size": 3},
    ]
    shapes = [tuple(parameter.shape) for parameter in network.parameters()]
    assert shapes == [(2, 1, 2, 2), (2,), (4, 8), (4,), (4,), (4,), (3, 4), (3,), (3,)]
    assert nn.describe(torch.nn.Sequential(nn.Dueling(3, 51))) == [
        {"kind": "dueling", "actions": 3, "atoms": 51}
    ]


class Doubled(torch.nn.Linear):
    """Does not do what its base class does."""

    def forward(self, x):
        """Twice as much."""
        return 2.0 * super().forward(x)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.GELU(),
        Doubled(2, 2),
        torch.nn.Linear(2, 2, bias=False),
        torch.nn.ELU(alpha=0.5),
        torch.nn.LayerNorm(2, elementwise_affine=False),
        torch.nn.LayerNorm((2, 2)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_layer_that_no_reader_knows_has_no_description(layer):
    """Rather than a wrong one."""
    assert nn.describe(torch.nn.Sequential(torch.nn.ReLU(), layer)) is None
    assert nn.describe(layer) is None


def test_polyak_moves_a_quarter_of_the_way():
    """In place, in every parameter; the source stays."""
    source, target = nn.mlp((1, 1, 1)), nn.mlp((1, 1, 1))
    fill(source, [1.0], [2.0], [3.0], [4.0])
    fill(target, [1.0], [0.0], [-1.0], [0.0])
    nn.polyak(target, source, 0.25)
    assert packed(target).tolist() == [1.0, 0.5, 0.0, 1.0]
    assert packed(source).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_periodic_copy_comes_at_every_third_call():
    """And goes on counting from a checkpoint."""
    source, target, clock = nn.mlp((1, 1)), nn.mlp((1, 1)), nn.PeriodicCopy()
    fill(source, [1.0], [2.0])
    fill(target, [0.0], [0.0])
    seen = []
    for call in range(6):
        if call == 4:
            again = nn.PeriodicCopy()
            again.load_state_dict(copy.deepcopy(clock.state_dict()))
            clock = again
        clock.update(target, source, tau=1.0, period=3)
        seen.append(packed(target).tolist())
        fill(source, [1.0 + call], [2.0])
    assert seen[:2] == [[0.0, 0.0]] * 2
    assert seen[2:5] == [[2.0, 2.0]] * 3
    assert seen[5] == [5.0, 2.0]


@pytest.mark.parametrize("first", [0.0, 0.5, 1 / 3])
def test_a_count_that_groups_have_averaged_goes_on(first):
    """Three copies in 60 calls of a period of 20, from any number."""
    source, target, clock = nn.mlp((1, 1)), nn.mlp((1, 1)), nn.PeriodicCopy()
    clock.count.data.fill_(first)
    moves = 0
    for call in range(60):
        fill(source, [1.0 + call], [2.0])
        before = packed(target).tolist()
        clock.update(target, source, tau=1.0, period=20)
        moves += packed(target).tolist() != before
    assert moves == 3


@pytest.mark.parametrize("period", [0, 3])
def test_statistics_of_a_layer_come_with_its_parameters(period):
    """A target in eval mode sees what the trained network has seen, at each move and not between them."""
    source, target = torch.nn.BatchNorm1d(1), torch.nn.BatchNorm1d(1)
    clock = nn.PeriodicCopy()
    for call in range(1, 7):
        source.running_mean.fill_(float(call))
        if period:
            clock.update(target, source, tau=0.5, period=period)
        else:
            nn.polyak(target, source, 0.5)
        target.register_buffer("seen", torch.zeros(call), persistent=False)  # the author's own business
        moved = call // period * period if period else call
        assert target.running_mean.item() == moved


def test_first_weights_of_a_convolution_are_bounded_like_those_of_a_linear_layer():
    """1 / sqrt(channels * kernel^2)."""
    torch.manual_seed(0)
    layer = nn.Conv((4, 9, 9), out=32, kernel=3, stride=1)
    bound = 1 / math.sqrt(36)
    assert 0.9 * bound < layer.weight.abs().max() <= bound


def test_a_random_shift_moves_each_image_as_a_whole_and_repeats_its_border():
    """Every image is one of the nine places to which one pixel can move it, all channels alike, and all nine
    are drawn alike often.
    """
    torch.manual_seed(0)
    image = torch.arange(24.0).view(2, 3, 4)
    padded = torch.nn.functional.pad(image[None], (1, 1, 1, 1), mode="replicate")[0]
    places = {
        tuple(padded[:, y : y + 3, x : x + 4].reshape(-1).tolist()): 0 for y in range(3) for x in range(3)
    }
    assert len(places) == 9
    for row in nn.random_shift(image.view(1, -1).expand(9_000, -1), (2, 3, 4), 1):
        places[tuple(row.tolist())] += 1
    assert min(places.values()) > 850
    assert max(places.values()) < 1150
