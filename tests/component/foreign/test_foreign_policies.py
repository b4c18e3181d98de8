"""Policies evaluated in C++ and JavaScript give the actions that torch gives."""

import json
import math
import struct
import subprocess
from itertools import pairwise

import numpy as np
import pytest
import torch

from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message, encode

NUM = 10_000
SIZE, ACTIONS = 17, 6
HIDDEN = [
    {"kind": "linear", "in": SIZE, "out": 256},
    {"kind": "layer_norm", "size": 256, "eps": 1e-5},
    {"kind": "relu"},
    {"kind": "linear", "in": 256, "out": 100},  # no multiple of a vector's lanes
]
#: Without a part that is the same for every observation and would decide for one of the discrete actions.
CENTRED = [
    {"kind": "linear", "in": SIZE, "out": 256},
    {"kind": "tanh"},
    {"kind": "linear", "in": 256, "out": 100},
]
#: Head -> the layers after the hidden ones, the distribution, whether actions have bounds.
HEADS = {
    "tanh_normal": (
        [{"kind": "silu"}, {"kind": "linear", "in": 100, "out": 2 * ACTIONS}],
        {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0},
        True,
    ),
    "normal": (
        [
            {"kind": "tanh"},
            {"kind": "linear", "in": 100, "out": ACTIONS},
            {"kind": "append", "size": ACTIONS},
        ],
        {"kind": "normal", "log_std_min": -1.0, "log_std_max": 0.5},
        True,
    ),
    "normal_without_bounds": (
        [{"kind": "elu"}, {"kind": "linear", "in": 100, "out": 2 * ACTIONS}],
        {"kind": "normal", "log_std_min": -1.0, "log_std_max": 0.5},
        False,
    ),
    "deterministic": (
        [{"kind": "relu"}, {"kind": "linear", "in": 100, "out": ACTIONS}],
        {"kind": "deterministic", "noise_min": 0.1, "noise_max": 0.4},
        True,
    ),
    "categorical": (
        [{"kind": "tanh"}, {"kind": "linear", "in": 100, "out": 7}],
        {"kind": "categorical", "sizes": [4, 3]},
        False,
    ),
    "epsilon_greedy": (
        [
            {"kind": "tanh"},
            {"kind": "linear", "in": 100, "out": 5 * 11},
            {"kind": "dueling", "actions": 4, "atoms": 11},
        ],
        {
            "kind": "epsilon_greedy",
            "num_actions": 4,
            "epsilon": 0.3,
            "spread": 2.0,
            "atoms": 11,
            "v_min": -3.0,
            "v_max": 8.0,
        },
        False,
    ),
    "categorical_of_legal": (
        [{"kind": "tanh"}, {"kind": "linear", "in": 100, "out": 7}],
        {"kind": "categorical", "sizes": [4, 3], "action_mask": True},
        False,
    ),
    "epsilon_greedy_of_legal": (
        [{"kind": "tanh"}, {"kind": "linear", "in": 100, "out": 4}],
        {
            "kind": "epsilon_greedy",
            "num_actions": 4,
            "epsilon": 0.3,
            "spread": 0.0,
            "atoms": 1,
            "v_min": 0.0,
            "v_max": 0.0,
            "action_mask": True,
        },
        False,
    ),
    "epsilon_greedy_of_images": (
        [
            {"kind": "append", "size": 26},
            {"kind": "conv2d", "shape": [2, 7, 9], "out": 5, "kernel": 3, "stride": 2},
            {"kind": "elu"},
            {"kind": "linear", "in": 60, "out": 4},
        ],
        {
            "kind": "epsilon_greedy",
            "num_actions": 4,
            "epsilon": 0.3,
            "spread": 0.0,
            "atoms": 1,
            "v_min": 0.0,
            "v_max": 0.0,
        },
        False,
    ),
}
IN_A_BOX = [
    name for name, (_, about, _) in HEADS.items() if about["kind"] not in ("categorical", "epsilon_greedy")
]


def num_parameters(layer):
    """Of one layer."""
    match layer["kind"]:
        case "linear":
            return layer["out"] * (layer["in"] + 1)
        case "layer_norm":
            return 2 * layer["size"]
        case "append":
            return layer["size"]
        case "conv2d":
            return layer["out"] * (layer["shape"][0] * layer["kernel"] ** 2 + 1)
    return 0


def message_of(name, **description):
    """A policy message with random weights."""
    rng = np.random.default_rng(7)
    layers, distribution, is_bounded = HEADS[name]
    layers = [*(HIDDEN if is_bounded else CENTRED), *layers]
    parameters = []
    for layer in layers:
        scale = 2 / math.sqrt(layer.get("in", 9))
        parameters.append(rng.uniform(-scale, scale, num_parameters(layer)))
    arrays = {
        "parameters": np.concatenate(parameters),
        "observation_mean": rng.normal(size=SIZE),
        "observation_std": rng.uniform(0.5, 2.0, SIZE),
    }
    if is_bounded:
        arrays |= {"action_low": np.linspace(-3, -1, ACTIONS), "action_high": np.linspace(0.5, 2, ACTIONS)}
    about = {
        "layers": layers,
        "distribution": distribution,
        "observation": {"shape": [SIZE], "normalize": True, "clip": 2.0},
        **description,
    }
    fields = {"version": 1, "critic_updates": 1, "actor_updates": 1, "description": about, "extras": {}}
    floats = {key: array.astype(np.float32) for key, array in arrays.items()}
    return Message("policy", fields, floats, "actor_learner-0", 5, 0)


def torch_output(message, obs):
    """The network's output by torch, written out once more."""
    arrays = {name: torch.from_numpy(array) for name, array in message.arrays.items()}
    x = (torch.from_numpy(obs) - arrays["observation_mean"]) / arrays["observation_std"]
    x = x.clip(-2.0, 2.0)
    at = 0

    def take(*shape):
        nonlocal at
        at += math.prod(shape)
        return arrays["parameters"][at - math.prod(shape) : at].reshape(shape)

    for layer in message.fields["description"]["layers"]:
        match layer["kind"]:
            case "linear":
                x = torch.nn.functional.linear(x, take(layer["out"], layer["in"]), take(layer["out"]))
            case "layer_norm":
                size = (layer["size"],)
                x = torch.nn.functional.layer_norm(x, size, take(*size), take(*size), layer["eps"])
            case "append":
                x = torch.cat([x, take(layer["size"]).expand(len(x), -1)], 1)
            case "conv2d":
                kernel = layer["kernel"]
                weight = take(layer["out"], layer["shape"][0], kernel, kernel)
                images = x.reshape(-1, *layer["shape"])
                x = torch.nn.functional.conv2d(images, weight, take(layer["out"]), layer["stride"]).flatten(1)
            case "dueling":
                parts = x.reshape(len(x), 1 + layer["actions"], layer["atoms"])
                x = (parts[:, :1] + parts[:, 1:] - parts[:, 1:].mean(1, keepdim=True)).flatten(1)
            case kind:
                x = getattr(torch.nn.functional, kind)(x)
    return x


def torch_mode(message, obs):
    """The deterministic action by torch; of discrete actions the scores too, to leave out ties."""
    out, about = torch_output(message, obs), message.fields["description"]["distribution"]
    if (legal := masks(message, len(obs))) is not None:
        out = out.masked_fill(~torch.from_numpy(legal), -1e8)
    if about["kind"] == "categorical":
        parts = out.split(about["sizes"], 1)
        return torch.stack([part.argmax(1) for part in parts], 1), min_gap(parts)
    if about["kind"] == "epsilon_greedy":
        values = out.reshape(len(out), about["num_actions"], about["atoms"])
        if about["atoms"] > 1:
            support = torch.linspace(about["v_min"], about["v_max"], about["atoms"])
            values = values.softmax(2) * support
        values = values.sum(2)
        return values.argmax(1, keepdim=True), min_gap([values])
    low, high = (
        torch.from_numpy(message.arrays[key]) if key in message.arrays else None
        for key in ("action_low", "action_high")
    )
    mean = out if about["kind"] == "deterministic" else out[:, :ACTIONS]
    unit = mean if about["kind"] == "normal" else mean.tanh()
    if low is None:
        return unit, None
    return ((low + high) / 2 + (high - low) / 2 * unit).clip(low, high), None


def min_gap(scores):
    """``[N]``: by how much the best is better than the second, at the closest choice."""
    tops = [part.topk(2, 1).values for part in scores]
    return torch.stack([top[:, 0] - top[:, 1] for top in tops], 1).amin(1)


def agree(actions, message, obs):
    """Actions ``[N, A]`` are torch's to 1e-5; choices wherever these are not tied to 1e-5."""
    expected, gap = torch_mode(message, obs)
    if gap is None:
        np.testing.assert_allclose(actions, expected.numpy(), atol=1e-5)
        return
    clear = (gap > 1e-5).numpy()
    assert clear.sum() > 0.99 * len(obs)
    assert np.array_equal(actions[clear], expected.numpy()[clear])
    assert len(np.unique(actions[clear], axis=0)) > 2


def masks(message, num):
    """``[num, A]``: half of all choices, the last of each discrete action always; None for other policies."""
    about = message.fields["description"]["distribution"]
    if not about.get("action_mask"):
        return None
    sizes = about.get("sizes", [about.get("num_actions")])
    legal = np.random.default_rng(2).random((num, sum(sizes))) < 0.5
    legal[:, np.cumsum(sizes) - 1] = True
    return legal


def observations():
    """``[N, SIZE]``."""
    return np.random.default_rng(3).normal(size=(NUM, SIZE)).astype(np.float32)


def played(probe, message, obs, rows=16):
    """Deterministic actions, drawn ones and their log densities, in C++."""
    frames = [bytes(frame) for frame in encode(message)]
    packed = struct.pack("<I", len(frames)) + b"".join(struct.pack("<I", len(f)) + f for f in frames)
    command = [probe, "act", str(rows)]
    legal = masks(message, len(obs))
    rest = obs.tobytes() + (b"" if legal is None else legal.tobytes())
    done = subprocess.run(command, input=packed + rest, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    table = np.array([line.split() for line in done.stdout.decode().splitlines()], np.float64)
    width = (table.shape[1] - 1) // 2
    if legal is not None:
        never_illegal(table[:, : 2 * width].astype(int), legal, message)
    return table[:, :width], table[:, width:-1], table[:, -1]


def never_illegal(actions, legal, message):
    """None of the actions ``[N, k]``, deterministic and drawn, is one that its mask forbids."""
    about = message.fields["description"]["distribution"]
    first = np.cumsum([0, *about.get("sizes", [0])[:-1]])
    chosen = actions.reshape(len(actions), 2, -1) + first
    assert np.take_along_axis(legal[:, None], chosen, 2).all()


@pytest.mark.parametrize("name", HEADS)
def test_cpp_acts_as_torch_does(probe, name):
    """10,000 observations, to 1e-5, however many are evaluated at once."""
    message, obs = message_of(name), observations()
    agree(played(probe, message, obs)[0], message, obs)
    agree(played(probe, message, obs[:500], rows=13)[0], message, obs[:500])


@pytest.mark.parametrize("name", HEADS)
def test_cpp_draws_from_the_distribution(probe, name):
    """The drawn actions have the moments, and the log densities, of the library's own policy."""
    message, obs = message_of(name), observations()
    policy = Policy.from_message(message.fields, message.arrays)
    about = message.fields["description"]["distribution"]
    has_density = about["kind"] != "deterministic"
    mode, drawn, log_prob = played(probe, message, obs)
    place = np.full(NUM, 0.25, np.float32)
    given = {"place": place, "log_prob": has_density, "action_mask": masks(message, NUM)}
    ours, our_log_prob = policy.act(obs, np.random.default_rng(1), **given)
    off, our_off = drawn - mode, ours.reshape(NUM, -1) - mode
    error = np.maximum(np.sqrt(our_off.var(0) / NUM), 1e-6)
    assert np.abs(off.mean(0) - our_off.mean(0)).max() < 7 * error.max()
    assert np.abs(off.std(0) / our_off.std(0) - 1).max() < 0.06
    if has_density:
        assert abs(log_prob.mean() - our_log_prob.mean()) < 7 * our_log_prob.std() / math.sqrt(NUM)
        assert abs(log_prob.std() / our_log_prob.std() - 1) < 0.06


def test_cpp_names_what_it_cannot_play(probe):
    """A layer, a distribution and sizes that do not fit."""
    wrong = {
        "unknown layer gru": {"layers": [{"kind": "gru"}]},
        "unknown distribution beta": {"distribution": {"kind": "beta"}},
        "a linear layer takes 5 numbers, 17 come to it": {"layers": [{"kind": "linear", "in": 5, "out": 2}]},
        "there are more parameters than the layers need": {"layers": [{"kind": "relu"}]},
        'the Python class "mine:Mine"': {"class": "mine:Mine"},
        "it takes stacks of images": {"observation": {"shape": [SIZE], "normalize": False, "stack": 4}},
    }
    for words, description in wrong.items():
        with pytest.raises(
            AssertionError, match="policy version 1 cannot be used: .*" + words.replace('"', '\\\\?"')
        ):
            played(probe, message_of("tanh_normal", **description), observations()[:1])


@pytest.mark.parametrize("name", ["tanh_normal", "normal_without_bounds", "categorical", "epsilon_greedy"])
def test_cpp_gives_no_action_of_a_network_that_overflows(probe, name):
    """Its weights are finite, what it gives is NaN: the version is named, of a choice as of a box."""
    sizes = [SIZE, 50, 50, 50, 55 if name == "epsilon_greedy" else 2 * ACTIONS if name in IN_A_BOX else 7]
    layers = [{"kind": "linear", "in": one, "out": other} for one, other in pairwise(sizes)]
    layers += HEADS[name][0][2:]
    message = message_of(name, layers=layers)
    signs = np.sign(np.random.default_rng(1).normal(size=sum(map(num_parameters, layers))))
    message.arrays["parameters"] = np.float32(1e15 * signs)
    with pytest.raises(AssertionError, match=r"policy version 1 cannot be used: its action holds NaN"):
        played(probe, message, observations()[:1])


@pytest.mark.parametrize("name", IN_A_BOX)
def test_javascript_acts_as_torch_does(new_node, name, tmp_path):
    """500 observations, to 1e-5, of each head over a box."""
    message, obs = message_of(name), observations()[:500]
    (tmp_path / "parameters").write_bytes(message.arrays["parameters"].tobytes())
    (tmp_path / "obs").write_bytes(obs.tobytes())
    others = {key: array.tolist() for key, array in message.arrays.items() if key != "parameters"}
    (tmp_path / "about.json").write_text(json.dumps({"fields": message.fields, "arrays": others}))
    script = f"""
        const fs = require("fs"), {{ act }} = require({json.dumps(str(new_node / "policy.js"))});
        const floats = (name) => new Float32Array(new Uint8Array(fs.readFileSync(name)).buffer);
        const {{ fields, arrays }} = JSON.parse(fs.readFileSync("about.json"));
        arrays.parameters = floats("parameters");
        const obs = floats("obs"), rows = [];
        for (let at = 0; at < obs.length; at += {SIZE})
            rows.push(act(fields, arrays, [...obs.subarray(at, at + {SIZE})]).action);
        console.log(JSON.stringify(rows));
    """
    done = subprocess.run(["node", "-e", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    agree(np.array(json.loads(done.stdout)), message, obs)
