"""The layers beyond the plain ones: convolutions in torch, appended numbers and dueling values in NumPy."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.description import read_layers
from spreeze_zmq.policy.network import Network
from spreeze_zmq.policy.torch_network import TorchNetwork


def evaluated(layers, parameters, rows, network=Network):
    """What the layers give for rows."""
    parameters = np.asarray(parameters, np.float32)
    return network(read_layers(layers, parameters, rows.shape[1]))(rows)


def test_append_adds_learned_numbers_to_every_row():
    """Whatever the observation."""
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    layers = [{"kind": "append", "size": 2}, {"kind": "relu"}]
    for _ in range(2):
        result = evaluated(layers, [-0.5, 0.5], rows)
        assert result.tolist() == [[1.0, 2.0, 0.0, 0.5], [3.0, 4.0, 0.0, 0.5]]
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_network_may_be_asked_again():
    """Layers that work in place do not spoil the numbers that were appended."""
    layers = read_layers([{"kind": "append", "size": 1}, {"kind": "tanh"}], np.float32([2.0]), 1)
    network = Network(layers)
    expected = np.tanh([[1.0, 2.0]]).astype(np.float32)
    for _ in range(3):
        np.testing.assert_allclose(network(np.float32([[1.0]])), expected, rtol=1e-6)


def test_another_thread_spoils_nothing_of_what_this_one_evaluates():
    """One policy may act for several threads: a product lets others run."""
    network = Network(read_layers([{"kind": "linear", "in": 2, "out": 1}], np.float32([1.0, 2.0, 0.5]), 2))
    mine = network(np.float32([[1.0, 1.0]]))
    with ThreadPoolExecutor(1) as other:
        assert other.submit(network, np.float32([[10.0, 10.0]])).result().tolist() == [[30.5]]
    assert mine.tolist() == [[3.5]]


def test_dueling_adds_the_value_to_centred_advantages():
    """Value 10, advantages 1, 2, 6 of mean 3: 8, 9, 13 (arXiv 1511.06581, equation 9)."""
    layers = [{"kind": "dueling", "actions": 3, "atoms": 1}]
    assert evaluated(layers, [], np.float32([[10.0, 1.0, 2.0, 6.0]])).tolist() == [[8.0, 9.0, 13.0]]


def test_dueling_goes_atom_by_atom():
    """Two atoms: values 10 and 20, advantages (1, 2) and (3, 6)."""
    layers = [{"kind": "dueling", "actions": 2, "atoms": 2}]
    result = evaluated(layers, [], np.float32([[10.0, 20.0, 1.0, 2.0, 3.0, 6.0]]))
    assert result.tolist() == [[9.0, 18.0, 11.0, 22.0]]


def image_layers():
    """A small vision network of every layer that there is, and the same in torch."""
    convolution, dense = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4 * 4 * 3, 8)
    norm, last = nn.LayerNorm(8), nn.Linear(8, 4)
    modules = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), dense, norm, nn.ELU(), last)
    layers = [
        {"kind": "conv2d", "shape": [3, 9, 8], "out": 4, "kernel": 3, "stride": 2},
        {"kind": "relu"},
        {"kind": "linear", "in": 48, "out": 8},
        {"kind": "layer_norm", "size": 8, "eps": 1e-5},
        {"kind": "elu"},
        {"kind": "linear", "in": 8, "out": 4},
    ]
    return layers, modules


def test_convolutions_equal_torch():
    """Images of uint8, scaled by the observation's statistics; the third row and column are cut off."""
    torch.manual_seed(0)
    layers, modules = image_layers()
    obs = np.random.default_rng(0).integers(0, 256, (5, 3, 9, 8), np.uint8)
    fields = {
        "version": 1,
        "description": {
            "observation": {"shape": [3, 9, 8], "normalize": True, "clip": 10.0},
            "layers": layers,
            "distribution": {"kind": "categorical", "sizes": [4]},
        },
    }
    arrays = {
        "parameters": nn.utils.parameters_to_vector(modules.parameters()).detach().numpy(),
        "observation_mean": np.full((3, 9, 8), 128.0, np.float32),
        "observation_std": np.full((3, 9, 8), 64.0, np.float32),
    }
    policy = Policy(fields, arrays)
    logits = modules((torch.from_numpy(obs).float() - 128.0) / 64.0).detach()
    assert policy.mode(obs).tolist() == logits.argmax(1).tolist()
    action, log_prob = policy.act(obs, np.random.default_rng(0), log_prob=True)
    expected = torch.distributions.Categorical(logits=logits).log_prob(torch.from_numpy(action))
    np.testing.assert_allclose(log_prob, expected, atol=1e-5)


def test_a_convolution_by_hand():
    """A kernel of ones over a picture of counts, stride 1: sums of each 2 x 2 window, plus the bias."""
    layers = [{"kind": "conv2d", "shape": [1, 2, 3], "out": 1, "kernel": 2, "stride": 1}]
    rows = np.arange(6, dtype=np.float32)[None]
    assert evaluated(layers, [1, 1, 1, 1, 0.5], rows, TorchNetwork).tolist() == [[8.5, 12.5]]


def test_torch_and_numpy_agree_on_every_other_layer():
    """A network without convolutions, evaluated both ways, from memory that may not be written to."""
    rng = np.random.default_rng(1)
    layers = [
        {"kind": "linear", "in": 3, "out": 6},
        {"kind": "layer_norm", "size": 6, "eps": 1e-3},
        {"kind": "silu"},
        {"kind": "append", "size": 2},
        {"kind": "elu"},
        {"kind": "tanh"},
        {"kind": "relu"},
        {"kind": "dueling", "actions": 3, "atoms": 2},
    ]
    parameters, rows = rng.standard_normal(24 + 12 + 2), rng.standard_normal((7, 3)).astype(np.float32)
    rows.setflags(write=False)
    expected = evaluated(layers, parameters, rows)
    np.testing.assert_allclose(evaluated(layers, parameters, rows, TorchNetwork), expected, atol=1e-5)
    assert expected.shape == (7, 6)


def test_torch_comes_only_with_a_convolution():
    """A sampler of any other policy starts without its second and more, and its 200 MB."""
    program = """
import sys, numpy as np
from spreeze_zmq.policy import Policy
def make(first, size):
    about = {"observation": {"shape": [1, 2, 2], "normalize": False, "clip": 1.0},
             "layers": [first, {"kind": "append", "size": 1}],
             "distribution": {"kind": "categorical", "sizes": [2]}}
    return Policy({"version": 1, "description": about}, {"parameters": np.ones(size, np.float32)})
make({"kind": "linear", "in": 4, "out": 1}, 6).mode(np.ones((1, 1, 2, 2)))
print("torch" in sys.modules)
convolution = {"kind": "conv2d", "shape": [1, 2, 2], "out": 1, "kernel": 2, "stride": 1}
make(convolution, 6).mode(np.ones((1, 1, 2, 2)))
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


CONV = {"kind": "conv2d", "shape": [1, 2, 2], "out": 1, "kernel": 2, "stride": 1}


@pytest.mark.parametrize(
    ("layer", "problem"),
    [
        ({**CONV, "kernel": 3}, "a kernel of 3 takes larger images"),
        ({**CONV, "shape": [1, 2, 3]}, "4 numbers come to it"),
        ({**CONV, "shape": [2, 2]}, "takes images"),
        ({**CONV, "stride": 0}, "stride is 0"),
        ({**CONV, "out": 2}, "the layers need more than the 5 parameters"),
        ({**CONV, "out": -1}, "out is -1"),
        ({"kind": "append", "size": 6}, "the layers need more than the 5 parameters"),
        ({"kind": "append", "size": 2**70}, "the layers need more than the 5 parameters"),
        ({"kind": "append", "size": 1.0}, "size is 1.0, expected an integer"),
        ({"kind": "append"}, "'size' is missing"),
        ({"kind": "dueling", "actions": 2, "atoms": 1}, "takes 3 numbers, 4 come to it"),
        ({"kind": "layer_norm", "size": 4, "eps": "small"}, "eps is 'small'"),
        ({"kind": "relu"}, "the layers need"),
        (None, "there are no layers"),
    ],
)
def test_a_layer_that_does_not_fit_is_refused(layer, problem):
    """Four numbers come, and five parameters."""
    description = {
        "observation": {"shape": [4], "normalize": False, "clip": 1.0},
        "layers": [] if layer is None else [layer],
        "distribution": {"kind": "categorical", "sizes": [1]},
    }
    with pytest.raises(WireError, match=problem) as caught:
        Policy({"version": 1, "description": description}, {"parameters": np.zeros(5, np.float32)})
    assert caught.value.reason == "bad_policy"


def test_observations_of_another_size_are_refused():
    """The policy says what it takes, and what came."""
    description = {
        "observation": {"shape": [4], "normalize": False, "clip": 1.0},
        "layers": [{"kind": "relu"}],
        "distribution": {"kind": "categorical", "sizes": [4]},
    }
    policy = Policy({"version": 1, "description": description}, {"parameters": np.zeros(0, np.float32)})
    with pytest.raises(WireError, match=r"takes observations of shape \[4\], they are \[3\]"):
        policy.mode(np.zeros((2, 3)))
