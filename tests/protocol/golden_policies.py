"""A policy of each distribution and layer, and what it must do: the files that pin it; running this file
writes them again.

The numbers are computed by the example in plain Python, not by the library.
"""

import json
from pathlib import Path

import numpy as np
from golden_messages import FOLDER as MESSAGES_FOLDER
from golden_messages import to_file

from spreeze_zmq.wire import Message, encode

FOLDER = MESSAGES_FOLDER / "policies"
EXAMPLE = Path(__file__).parents[2] / "components" / "examples" / "sampler_python" / "policy.py"


def document_program():
    """The functions ``network`` and ``act`` of the example."""
    names = {}
    exec(EXAMPLE.read_text(), names)
    return names["network"], names["act"]


def _linear(inputs, outputs):
    return {"kind": "linear", "in": inputs, "out": outputs}


def _observation(*shape, normalize=False, clip=10.0):
    return {"shape": list(shape), "normalize": normalize, "clip": clip}


#: Of the environment that drew the actions in the files.
PLACE = 0.25
#: name -> layers, distribution, observation and what arrays there are besides the parameters.
POLICIES = {
    "tanh_normal": (
        [_linear(3, 4), {"kind": "layer_norm", "size": 4, "eps": 1e-5}, {"kind": "silu"}, _linear(4, 4)],
        {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0},
        _observation(3, normalize=True, clip=1.5),
        {
            "action_low": [-2.0, 0.0],
            "action_high": [1.0, 5.0],
            "observation_mean": [0.5, 0.0, -1.0],
            "observation_std": [0.5, 2.0, 1.0],
        },
    ),
    "normal": (
        [_linear(3, 4), {"kind": "tanh"}, _linear(4, 2), {"kind": "append", "size": 2}],
        {"kind": "normal", "log_std_min": -0.25, "log_std_max": 0.25},
        _observation(3),
        {"action_low": [-2.0, 0.0], "action_high": [1.0, 5.0]},
    ),
    "normal_without_bounds": (
        [_linear(3, 2)],
        {"kind": "normal", "log_std_min": -5.0, "log_std_max": 2.0},
        _observation(3),
        {},
    ),
    "deterministic": (
        [_linear(3, 4), {"kind": "elu"}, _linear(4, 2)],
        {"kind": "deterministic", "noise_min": 0.125, "noise_max": 0.5},
        _observation(3),
        {"action_low": [-2.0, 0.0], "action_high": [1.0, 5.0]},
    ),
    "categorical": (
        [_linear(3, 4), {"kind": "relu"}, _linear(4, 3)],
        {"kind": "categorical", "sizes": [3]},
        _observation(3),
        {},
    ),
    "categorical_of_several": (
        [_linear(3, 5)],
        {"kind": "categorical", "sizes": [2, 3]},
        _observation(3),
        {},
    ),
    "epsilon_greedy": (
        [_linear(3, 4), {"kind": "dueling", "actions": 3, "atoms": 1}],
        {
            "kind": "epsilon_greedy",
            "num_actions": 3,
            "epsilon": 0.5,
            "spread": 7.0,
            "atoms": 1,
            "v_min": 0.0,
            "v_max": 0.0,
        },
        _observation(3),
        {},
    ),
    "epsilon_greedy_of_atoms": (
        [
            {"kind": "conv2d", "shape": [2, 4, 5], "out": 2, "kernel": 2, "stride": 2},
            {"kind": "relu"},
            _linear(8, 9),
            {"kind": "dueling", "actions": 2, "atoms": 3},
        ],
        {
            "kind": "epsilon_greedy",
            "num_actions": 2,
            "epsilon": 0.25,
            "spread": 0.0,
            "atoms": 3,
            "v_min": -1.0,
            "v_max": 3.0,
        },
        _observation(2, 4, 5),
        {},
    ),
    "categorical_of_legal": (
        [_linear(3, 5)],
        {"kind": "categorical", "sizes": [2, 3], "action_mask": True},
        _observation(3),
        {},
    ),
    "epsilon_greedy_of_legal": (
        [_linear(3, 4)],
        {
            "kind": "epsilon_greedy",
            "num_actions": 4,
            "epsilon": 0.75,
            "spread": 0.0,
            "atoms": 1,
            "v_min": 0.0,
            "v_max": 0.0,
            "action_mask": True,
        },
        _observation(3),
        {},
    ),
}


def num_parameters(layers):
    """How many parameters the layers take."""
    count = 0
    for layer in layers:
        match layer["kind"]:
            case "linear":
                count += layer["out"] * (layer["in"] + 1)
            case "layer_norm":
                count += 2 * layer["size"]
            case "conv2d":
                count += layer["out"] * (layer["shape"][0] * layer["kernel"] ** 2 + 1)
            case "append":
                count += layer["size"]
    return count


def message(name):
    """The policy message: its parameters are eighths between -5/8 and 5/8."""
    layers, distribution, observation, arrays = POLICIES[name]
    fields = {
        "version": 3,
        "critic_updates": 130,
        "actor_updates": 128,
        "description": {"layers": layers, "distribution": distribution, "observation": observation},
        "extras": {},
    }
    parameters = ((7 * np.arange(num_parameters(layers))) % 11 - 5).astype(np.float32) / 8
    others = {array: np.array(values, np.float32) for array, values in arrays.items()}
    return Message("policy", fields, {"parameters": parameters, **others}, "actor_learner-0", 123456789, 42)


def observations(name):
    """Four observations in quarters between -2 and 2."""
    shape = (4, *POLICIES[name][2]["shape"])
    return (((5 * np.arange(np.prod(shape))) % 17 - 8).astype(np.float32) / 4).reshape(shape)


def masks(name):
    """A mask for each observation, of all choices; of a policy that takes none, None for each."""
    about = POLICIES[name][1]
    if "action_mask" not in about:
        return [None] * 4
    num = sum(about.get("sizes", [about.get("num_actions", 0)]))
    legal = np.ones((4, num), np.bool_)
    legal[np.arange(4), np.arange(4) % num] = False  # of 2 and 3 choices, or of 4, one is missing
    return list(legal)


def parameters_of(about, output):
    """What the network's output ``[N, outputs]`` says of the distribution, by the formulae of PROTOCOL.md."""
    first, second = np.split(output, 2, 1) if output.shape[1] % 2 == 0 else (output, None)
    low, high = about.get("log_std_min"), about.get("log_std_max")
    match about["kind"]:
        case "tanh_normal":
            return {"mean": first, "log_std": low + (high - low) * (np.tanh(second) + 1) / 2}
        case "normal":
            return {"mean": first, "log_std": np.clip(second, low, high)}
        case "deterministic":
            return {"unit": np.tanh(output)}
        case "categorical":
            parts = np.split(output, np.cumsum(about["sizes"])[:-1], 1)
            return {"probabilities": np.concatenate([_softmax(part) for part in parts], 1)}
        case "epsilon_greedy":
            atoms = output.reshape(len(output), about["num_actions"], about["atoms"])
            support = np.linspace(about["v_min"], about["v_max"], about["atoms"])
            values = atoms[..., 0] if about["atoms"] == 1 else (_softmax(atoms) * support).sum(-1)
            epsilon = about["epsilon"] ** (1 + about["spread"] * np.array([0.0, 0.5, 1.0]))
            return {"values": values, "epsilon_at_0_half_1": epsilon}


def _softmax(logits):
    weight = np.exp(logits)
    return weight / weight.sum(-1, keepdims=True)


def to_policy_file(name):
    """What is kept of one policy: its message, observations, and what it makes of them."""
    network, act = document_program()
    policy, obs = message(name), observations(name)
    output = np.stack([network(policy.fields, policy.arrays, one) for one in obs]).astype(np.float64)
    about = policy.fields["description"]["distribution"]
    content = json.loads(to_file([bytes(frame) for frame in encode(policy)]))
    content["observations"] = obs.tolist()
    content["output"] = _rounded(output)
    content["distribution"] = {key: _rounded(value) for key, value in parameters_of(about, output).items()}
    pairs, numbers = list(zip(obs, masks(name), strict=True)), (policy.fields, policy.arrays)
    if "action_mask" in about:
        content["action_mask"] = np.stack(masks(name)).astype(int).tolist()
    actions = np.stack([act(*numbers, one, action_mask=legal)[0] for one, legal in pairs])
    content["deterministic_action"] = _rounded(actions)
    drawn = [
        act(*numbers, one, np.random.default_rng(k), PLACE, legal) for k, (one, legal) in enumerate(pairs)
    ]
    content["drawn"] = {"place": PLACE, "action": _rounded(np.stack([action for action, _ in drawn]))}
    if about["kind"] != "deterministic":
        content["drawn"]["log_prob"] = _rounded(np.array([log_prob for _, log_prob in drawn]))
    return json.dumps(content, indent=1) + "\n"


def _rounded(values):
    return values.tolist() if values.dtype.kind == "i" else np.round(values.astype(np.float64), 6).tolist()


def main() -> None:
    """Write every file again."""
    FOLDER.mkdir(exist_ok=True)
    for name in POLICIES:
        (FOLDER / f"{name}.json").write_text(to_policy_file(name))


if __name__ == "__main__":
    main()
