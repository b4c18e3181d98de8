"""The numpy policy against torch, its draws, its files and what it refuses."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.policy import Policy, read_file
from spreeze_zmq.wire import Message, decode, encode

MODULES = {"relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "tanh": nn.Tanh}
LOW, HIGH = np.array([-1.0, -2.0], np.float32), np.array([1.0, 4.0], np.float32)


def make_message(activation="relu", layer_norm=False, version=3, seed=0):
    """Fields and arrays of a policy 3 - 8 - 8 - 2 actions, and the same network in torch."""
    torch.manual_seed(seed)
    layers, modules = [], []
    for inputs, outputs in ((3, 8), (8, 8), (8, 4)):
        layers.append({"kind": "linear", "in": inputs, "out": outputs})
        modules.append(nn.Linear(inputs, outputs))
        if outputs == 8:
            if layer_norm:
                layers.append({"kind": "layer_norm", "size": 8, "eps": 1e-5})
                modules.append(nn.LayerNorm(8))
            layers.append({"kind": activation})
            modules.append(MODULES[activation]())
    network = nn.Sequential(*modules)
    parameters = [parameter.detach().add_(0.1).reshape(-1) for parameter in network.parameters()]
    distribution = {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0}
    observation = {"shape": [3], "normalize": False, "clip": 10.0}
    description = {"layers": layers, "distribution": distribution, "observation": observation}
    fields = {"version": version, "description": description, "extras": {"temperature": 0.2}}
    return (
        fields,
        {"parameters": torch.cat(parameters).numpy(), "action_low": LOW, "action_high": HIGH},
        network,
    )


def observations(num, seed=0):
    """Normal rows."""
    return np.random.default_rng(seed).standard_normal((num, 3)).astype(np.float32)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", MODULES)
def test_the_mode_equals_torch(activation, layer_norm):
    """To 1e-6, for every activation, scaled to the bounds."""
    fields, arrays, network = make_message(activation, layer_norm)
    obs = observations(16) * 3.0
    mean = torch.tanh(network(torch.from_numpy(obs))[:, :2]).detach().numpy()
    expected = (mean + 1.0) / 2.0 * (HIGH - LOW) + LOW
    policy = Policy.from_message(fields, arrays)
    for _ in range(2):  # the second time over used buffers
        np.testing.assert_allclose(policy.mode(obs), expected, atol=2e-6)


def test_draws_follow_the_network():
    """Mean and deviation before squashing are those that torch computes, and so is the density."""
    fields, arrays, network = make_message()
    obs = np.repeat(observations(1), 40_000, axis=0)
    action, log_prob = Policy.from_message(fields, arrays).act(obs, np.random.default_rng(0), log_prob=True)
    unit = ((action - LOW) / (HIGH - LOW) * 2.0 - 1.0).astype(np.float64)
    output = network(torch.from_numpy(obs[:1]))[0].detach().numpy().astype(np.float64)
    mean, std = output[:2], np.exp(-5.0 + 3.5 * (np.tanh(output[2:]) + 1.0))
    u = np.arctanh(np.clip(unit, -1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(u.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(u.std(0), std, rtol=0.02)
    expected = (-0.5 * ((u - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)).sum(1)
    expected -= np.log(1.0 - unit**2).sum(1)
    near = (np.abs(unit) < 0.99).all(1)  # float32 actions near the bounds have lost their u
    np.testing.assert_allclose(log_prob[near], expected[near], atol=2e-3)


def test_version_zero_is_uniform_in_the_bounds():
    """Learning has not begun: every action is equally likely."""
    fields, arrays, _ = make_message(version=0)
    policy = Policy.from_message(fields, arrays)
    action, log_prob = policy.act(observations(50_000), np.random.default_rng(0), log_prob=True)
    np.testing.assert_allclose(action.mean(0), [0.0, 1.0], atol=0.03)
    np.testing.assert_allclose(action.std(0), (HIGH - LOW) / math.sqrt(12), rtol=0.01)
    assert log_prob[0] == pytest.approx(-2 * math.log(2))


def test_actions_never_leave_the_bounds():
    """A saturated network gives the bound itself, rounding included."""
    fields, arrays, _ = make_message()
    arrays["parameters"] = arrays["parameters"] * 100.0
    policy = Policy.from_message(fields, arrays)
    for action in (
        policy.act(observations(500), np.random.default_rng(0))[0],
        policy.mode(observations(500)),
    ):
        assert action.dtype == np.float32
        assert (action >= LOW).all()
        assert (action <= HIGH).all()


def test_draws_follow_the_generator():
    """The same generator gives the same actions; they are the caller's to keep."""
    fields, arrays, _ = make_message()
    policy = Policy.from_message(fields, arrays)
    first, density = policy.act(observations(4), np.random.default_rng(7))
    assert density is None
    kept = first.copy()
    policy.act(observations(4, seed=1), np.random.default_rng(8))
    assert np.array_equal(first, kept)
    assert np.array_equal(policy.act(observations(4), np.random.default_rng(7))[0], kept)


def test_any_number_of_observations():
    """Buffers follow."""
    fields, arrays, _ = make_message()
    policy = Policy.from_message(fields, arrays)
    whole = policy.mode(observations(9))
    np.testing.assert_allclose(
        np.concatenate([policy.mode(observations(9)[i : i + 1]) for i in range(9)]), whole, atol=1e-6
    )


def test_observations_are_normalised_and_clipped():
    """(obs - mean) / std within +-clip, of any shape and dtype, before the network."""
    fields, arrays, network = make_message()
    fields["description"]["observation"] = {"shape": [1, 3], "normalize": True, "clip": 1.5}
    arrays["observation_mean"] = np.array([100.0, 0.0, 50.0], np.float32)
    arrays["observation_std"] = np.array([50.0, 1.0, 10.0], np.float32)
    obs = np.array([[[150, 1, 50]], [[0, 0, 250]]], np.uint8)
    rows = torch.tensor([[1.0, 1.0, 0.0], [-1.5, 0.0, 1.5]])
    expected = (torch.tanh(network(rows)[:, :2]).detach().numpy() + 1.0) / 2.0 * (HIGH - LOW) + LOW
    before = obs.copy()
    np.testing.assert_allclose(Policy.from_message(fields, arrays).mode(obs), expected, atol=2e-6)
    assert np.array_equal(obs, before)


def test_float_observations_are_not_overwritten():
    """The rollout keeps them."""
    fields, arrays, _ = make_message()
    fields["description"]["layers"].insert(0, {"kind": "layer_norm", "size": 3, "eps": 1e-5})
    arrays["parameters"] = np.concatenate([np.ones(3), np.zeros(3), arrays["parameters"]]).astype(np.float32)
    obs = observations(4)
    before = obs.copy()
    Policy.from_message(fields, arrays).mode(obs)
    assert np.array_equal(obs, before)


def test_actions_have_the_shape_of_the_bounds():
    """An action space of two rows."""
    fields, arrays, _ = make_message()
    arrays["action_low"], arrays["action_high"] = LOW.reshape(2, 1), HIGH.reshape(2, 1)
    policy = Policy.from_message(fields, arrays)
    assert policy.act(observations(5), np.random.default_rng(0))[0].shape == (5, 2, 1)
    assert policy.mode(observations(5)).shape == (5, 2, 1)


def test_a_misaligned_read_only_frame_will_do():
    """Arrays are views into received bytes, at whatever address."""
    fields, arrays, _ = make_message()
    raw = b"x" + arrays["parameters"].tobytes()
    shifted = np.frombuffer(raw, np.uint8)[1:].view(np.float32)
    expected = Policy.from_message(fields, arrays).mode(observations(4))
    actual = Policy.from_message(fields, {**arrays, "parameters": shifted}).mode(observations(4))
    assert np.array_equal(actual, expected)


def test_a_saved_policy_acts_the_same(tmp_path):
    """From its file alone: network, bounds, normaliser, version, extras and the words that went with it."""
    fields, arrays, _ = make_message("elu")
    fields["description"]["observation"]["normalize"] = True
    arrays["observation_mean"] = np.array([1.0, 2.0, 3.0], np.float32)
    arrays["observation_std"] = np.array([2.0, 2.0, 2.0], np.float32)
    policy = Policy.from_message(fields, arrays)
    path = tmp_path / "policy.safetensors"
    policy.save(path, {"mean_return": "12.5"})
    loaded = Policy.load(path)
    assert np.array_equal(loaded.mode(observations(8)), policy.mode(observations(8)))
    assert (loaded.version, loaded.extras, loaded.metadata) == (
        3,
        {"temperature": 0.2},
        {"mean_return": "12.5"},
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.safetensors"]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    """What cannot be written does not replace what was."""
    fields, arrays, _ = make_message()
    policy = Policy.from_message(fields, arrays)
    path = tmp_path / "policy.safetensors"
    policy.save(path, {"mean_return": "1"})
    with pytest.raises(ValueError, match="version"):
        policy.save(path, {"version": "mine"})
    assert Policy.load(path).metadata == {"mean_return": "1"}


@pytest.mark.parametrize("content", [None, b"", b"not a policy at all", "foreign", "torn"])
def test_a_file_that_is_no_policy_is_refused(tmp_path, content):
    """One clear error that names the file."""
    path = tmp_path / "policy.safetensors"
    if content == "foreign":
        from safetensors.numpy import save_file

        save_file({"weight": np.ones(3, np.float32)}, path)
    elif content == "torn":
        fields, arrays, _ = make_message()
        Policy.from_message(fields, arrays).save(path, {})
        path.write_bytes(path.read_bytes()[:-10])
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"policy\.safetensors"):
        Policy.load(path)


def test_a_description_that_does_not_fit_is_refused():
    """Each with the reason ``bad_policy`` and what was expected."""
    cases = []
    for change in range(12):
        fields, arrays, _ = make_message()
        description = fields["description"]
        match change:
            case 0:
                arrays["parameters"], problem = arrays["parameters"][:-1], "parameters"
            case 1:
                arrays["parameters"] = np.append(arrays["parameters"], np.float32(0.0))
                problem = "parameters are"
            case 2:
                arrays["parameters"], problem = arrays["parameters"].astype(np.float64), "float64"
            case 3:
                arrays["parameters"] = np.where(
                    np.arange(arrays["parameters"].size) == 5, np.nan, arrays["parameters"]
                )
                arrays["parameters"], problem = arrays["parameters"].astype(np.float32), "NaN"
            case 4:
                description["layers"][1], problem = {"kind": "gelu"}, "unknown layer 'gelu'"
            case 5:
                description["layers"][2]["in"], problem = 9, "takes 9"
            case 6:
                description["observation"]["shape"], problem = [4], "4 numbers come"
            case 7:
                description["distribution"]["kind"], problem = "beta", "unknown distribution 'beta'"
            case 8:
                del arrays["action_low"]
                problem = "'action_low' is missing"
            case 9:
                arrays["action_high"], problem = LOW, "not a box"
            case 10:
                arrays["action_low"], arrays["action_high"] = LOW[:1], HIGH[:1]
                problem = "the last layer gives 4 numbers, the distribution takes 2"
            case 11:
                description["layers"], problem = [{"kind": ["linear"]}], "unknown layer"
        cases.append((fields, arrays, problem))
    for fields, arrays, problem in cases:
        with pytest.raises(WireError, match=problem) as caught:
            Policy.from_message(fields, arrays)
        assert caught.value.reason == "bad_policy"


def test_what_the_learners_exchange_is_passed_over(tmp_path):
    """An auxiliary array travels with the policy, changes nothing in how it acts, and is not saved."""
    fields, arrays, _ = make_message()
    expected = Policy.from_message(fields, arrays).mode(observations(4))
    whole = {**fields, "critic_updates": 1, "actor_updates": 1}
    sent = Message("policy", whole, {**arrays, "auxiliary": np.full(5, 1e9, np.float32)}, "learner-0", 1, 0)
    received = decode([bytes(frame) for frame in encode(sent)])
    assert received.arrays["auxiliary"].shape == (5,)
    policy = Policy.from_message(received.fields, received.arrays)
    assert np.array_equal(policy.mode(observations(4)), expected)
    policy.save(tmp_path / "policy.safetensors", {})
    assert set(read_file(tmp_path / "policy.safetensors")[1]) == set(arrays)


def test_one_observation_or_a_batch(tmp_path):
    """``policy(obs)`` gives what the environment's step takes; a run's folder holds its best policy."""
    fields, arrays, _ = make_message()
    Policy.from_message(fields, arrays).save(tmp_path / "policy.safetensors", {})
    policy = Policy.load(tmp_path)
    obs = observations(5)
    np.testing.assert_allclose(policy(obs), policy.mode(obs))
    assert policy(obs[0]).shape == (2,)
    np.testing.assert_allclose(policy(obs[0].tolist()), policy.mode(obs[:1])[0])
    with pytest.raises(InputError, match=r"shape \(3,\), or a batch \(N, 3\), got \(4,\)"):
        policy(np.zeros(4))
    with pytest.raises(InputError, match=r"has no policy\.safetensors: no policy was evaluated in that run"):
        Policy.load(tmp_path.parent)


def test_a_stack_is_taken_as_gymnasium_stacks_frames():
    """``FrameStackObservation`` with the first frame repeated gives what the policy's own stack holds."""
    import gymnasium

    size = 2 * 12
    description = {
        "observation": {"shape": [4, 2, 3], "normalize": True, "clip": 10.0, "stack": 2},
        "layers": [{"kind": "linear", "in": 2 * size, "out": 5}],
        "distribution": {"kind": "categorical", "sizes": [5]},
    }
    description["observation"]["channels_last"] = True
    arrays = {
        "parameters": np.random.default_rng(0).standard_normal(5 * 2 * size + 5).astype(np.float32),
        "observation_mean": np.full(2 * size, 127.5, np.float32),
        "observation_std": np.full(2 * size, 127.5, np.float32),
    }
    policy = Policy({"version": 1, "description": description}, arrays)

    class Pictures(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (4, 2, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(5)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 0.0, False, False, {}

    Pictures.observation_space.seed(1)
    env = gymnasium.wrappers.FrameStackObservation(Pictures(), 2, padding_type="reset")
    assert policy.observation_shape == env.observation_space.shape
    obs, _ = env.reset()
    frames = policy.frame_stack()
    frames.begin(obs[-1:])
    actions = []
    for _ in range(20):
        actions.append(policy(obs))
        assert actions[-1] == policy.mode(frames.seen)[0] == policy(obs[None])[0]
        obs, *_ = env.step(actions[-1])
        frames.add(obs[-1:], np.array([False]))
    assert len(set(actions)) > 1


def test_the_package_imports_nothing_until_it_is_used():
    """And a policy of linear layers costs no torch."""
    code = (
        "import sys, spreeze_zmq; assert not {'numpy', 'zmq', 'torch'} & set(sys.modules);"
        "from spreeze_zmq import Policy; assert Policy.load; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("normalize", [False, True])
def test_a_policy_takes_the_numbers_of_the_next_message(normalize):
    """Of the same description: it is the same object, and acts to the bit as one made of that message."""
    made = []
    for seed in (0, 1):
        fields, arrays, _ = make_message(layer_norm=True, version=3 + seed, seed=seed)
        fields["description"]["observation"]["normalize"] = normalize
        if normalize:
            std = np.full(3, 2 + seed, np.float32)
            arrays |= {"observation_mean": std - 2, "observation_std": std}
        made.append((fields, arrays))
    obs, policy = observations(4), Policy.from_message(*made[0])
    before = policy.mode(obs)
    renewed, anew = Policy.from_message(*made[1], policy), Policy.from_message(*made[1])
    assert renewed is policy
    assert renewed.version == 4
    assert np.array_equal(renewed.mode(obs), anew.mode(obs))
    assert not np.array_equal(renewed.mode(obs), before)


def test_a_policy_of_another_description_or_bounds_is_made_anew():
    """Each where it differs; what does not make a policy is refused as it is from a first message."""
    fields, arrays, _ = make_message()
    policy, obs = Policy.from_message(fields, arrays), observations(4)
    wider = {**arrays, "action_high": HIGH * 2}
    other = Policy.from_message(fields, wider, policy)
    assert other is not policy
    assert np.array_equal(other.mode(obs), Policy.from_message(fields, wider).mode(obs))
    assert Policy.from_message(make_message("tanh")[0], arrays, other) is not other
    for wrong, why in (
        (arrays["parameters"][:-1], "the layers need more than the"),
        (np.append(arrays["parameters"], np.float32(0)), "parameters are"),
        (arrays["parameters"] * np.float32(np.nan), "parameters holds NaN or infinity"),
        (arrays["parameters"].astype(np.float64), "parameters is float64, expected float32"),
    ):
        last = Policy.from_message(fields, arrays)
        with pytest.raises(WireError, match=why):
            Policy.from_message(fields, {**arrays, "parameters": wrong}, last)
