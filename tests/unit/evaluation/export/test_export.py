"""Exported policies against the policy itself, in the runtimes that their users have."""

import importlib
import json
import resource
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium.spaces import MultiBinary, MultiDiscrete

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.class_policy import loader_of_modules
from spreeze_zmq.base.errors import InputError, SpreezeError
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.evaluation.export import export_onnx, export_torchscript, files
from spreeze_zmq.policy import Policy, actor, register_class_loader
from tests.unit.algorithms.shipped import BOX, DISCRETE, HIGH, LOW, MASKED, SEVERAL, UNBOUNDED

FRAMES = EnvironmentSpec("none", {}, (44, 40), "uint8", "discrete", action_sizes=(6,))
COLOURS = EnvironmentSpec("none", {}, (40, 36, 3), "uint8", "discrete", action_sizes=(6,))
IN_PART = replace(UNBOUNDED, action_limits=((0.0, None), (None, 0.0)))
SMALL = {"hidden_sizes": (16, 16)}
#: Algorithm, environment, options.
POLICIES = {
    "sac": ("sac", BOX, {"activation": "silu", "layer_norm": True, "actor_layer_norm": True, **SMALL}),
    "sac plain": ("sac", BOX, SMALL),
    "td3": ("td3", BOX, SMALL),
    "dqn": ("dqn", DISCRETE, SMALL),
    "dqn start": ("dqn", replace(DISCRETE, action_start=(7,)), SMALL),
    "dqn dueling c51": ("dqn", DISCRETE, {"dueling": True, "num_atoms": 11, **SMALL}),
    "dqn stack": ("dqn", FRAMES, {"network": "small_cnn", "dueling": True, "frame_stack": 4}),
    "dqn colours": ("dqn", COLOURS, {"network": "nature_cnn", "frame_stack": 2}),
    "pqn": ("pqn", DISCRETE, SMALL),
    "pqn stack": ("pqn", FRAMES, {"network": "nature_cnn", "frame_stack": 4}),
    "ppo": ("ppo", BOX, SMALL),
    "ppo unbounded": ("ppo", UNBOUNDED, SMALL),
    "ppo bounded in part": ("ppo", IN_PART, SMALL),
    "ppo discrete": ("ppo", DISCRETE, SMALL),
    "ppo multi-discrete": ("ppo", SEVERAL, SMALL),
    "ppo starts": ("ppo", replace(SEVERAL, action_start=(5, -1)), SMALL),
    "ppo stack": ("ppo", FRAMES, {"network": "small_cnn", "layer_norm": True, "frame_stack": 4}),
    "ppo memory": ("ppo", BOX, {"memory_size": 8, **SMALL}),
    "dqn memory": ("dqn", DISCRETE, {"memory_size": 8, **SMALL}),
    "sac memory": ("sac", BOX, {"memory_size": 8, **SMALL}),
    "td3 memory": ("td3", BOX, {"memory_size": 8, **SMALL}),
    "ppo masks": ("ppo", replace(SEVERAL, action_start=(5, -1), action_mask=True), SMALL),
    "ppo flags": ("ppo", replace(SEVERAL, action_shape=(4,), action_sizes=(2,) * 4), SMALL),
    "ppo one choice": (
        "ppo",
        replace(SEVERAL, action_shape=(1,), action_sizes=(5,), action_start=(2,)),
        SMALL,
    ),
    "ppo one flag": ("ppo", replace(SEVERAL, action_shape=(1,), action_sizes=(2,)), SMALL),
    "dqn masks memory": ("dqn", MASKED, {"memory_size": 8, **SMALL}),
    "dqn masks c51": ("dqn", MASKED, {"num_atoms": 11, **SMALL}),
    "own network": ("tests.unit.evaluation.export.own:Gated", BOX, SMALL),
    "own act": ("tests.unit.evaluation.export.own:Waving", BOX, SMALL),
    "own act bounded in part": ("tests.unit.evaluation.export.own:Roaming", IN_PART, SMALL),
}


def make_policy(name, env, options):
    """As a learner publishes it; its normaliser has seen observations where it learns one."""
    kind = algorithms.get(name)
    part = "policy" if kind.has_policy_loss() else "critic"
    half = algorithms.make(part, kind, kind.Options(**options), env, "cpu", 1)
    if env.obs_dtype == "float32":
        seen = np.random.default_rng(0).normal([100.0, 0.0, -3.0], [50.0, 1.0, 0.1], (500, 3))
        half.observe(seen.astype(np.float32))
    fields = {"version": 1, "description": half.description(), "extras": {}}
    return Policy(fields, half.policy_arrays(), {"environment": json.dumps(env.to_dict())})


@pytest.fixture
def policy(request, monkeypatch):
    """One of ``POLICIES``, and the dtype of its observations."""
    monkeypatch.setattr(actor, "_loaders", [])
    register_class_loader(loader_of_modules(["tests.unit.evaluation.export.own"]))
    name, env, options = POLICIES[request.param]
    made = make_policy(name, env, options)
    made.env = env
    return made


#: Policies that have every part of the others between them, but for an act of one's own and a large image's
#: network, which are traced as TorchScript.
APART = (
    "sac",
    "td3 memory",
    "ppo memory",
    "dqn stack",
    "dqn masks c51",
    "ppo bounded in part",
    "ppo masks",
    "own network",
)


@pytest.mark.parametrize(
    "policy",
    [pytest.param(name, marks=[] if name in APART else [pytest.mark.thorough]) for name in POLICIES],
    indirect=True,
)
def test_onnx_acts_as_the_policy_does(policy, tmp_path):
    """On 1,000 observations to 1e-5, of one and of many at once; the file is whole and alone."""
    path = tmp_path / "policy.onnx"
    assert export_onnx(policy, path, policy.env.obs_dtype) <= 1e-5
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.onnx"]
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path)
    inputs = files.random_inputs(policy, 1000, policy.env.obs_dtype, seed=5)
    actual, *after = session.run(None, inputs)
    names = [*(each.name for each in session.get_inputs()), *(each.name for each in session.get_outputs())]
    remembers, masked = bool(policy.memory_size), policy.env.action_mask
    assert names == [
        *("obs", *["memory"] * remembers, *["action_mask"] * masked),
        *("action", *["next_memory"] * remembers),
    ]
    given = {name: rows.copy() for name, rows in inputs.items()}
    expected = policy(**given)
    if after:
        np.testing.assert_allclose(after[0], given["memory"], rtol=0, atol=1e-5)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    assert np.isclose(actual, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max())).mean() > 0.998
    if expected.dtype == np.float32:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))
    one = session.run(["action"], {name: rows[:1] for name, rows in inputs.items()})[0]
    np.testing.assert_allclose(one, expected[:1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["ppo bounded in part"], indirect=True)
def test_an_action_stays_within_what_bounds_there_are(policy, tmp_path):
    """In Python and in what the test above has exported: the first at least 0, the second at most 0."""
    inputs = files.random_inputs(policy, 1000, policy.env.obs_dtype, seed=5)
    free = policy.mode(inputs["obs"])
    within = np.stack([free[:, 0].clip(0.0, None), free[:, 1].clip(None, 0.0)], 1)
    assert (free != within).any(0).all()
    np.testing.assert_array_equal(policy(**inputs), within)


@pytest.mark.parametrize("policy", ["ppo flags"], indirect=True)
def test_flags_are_what_their_space_takes(policy):
    """Each row, as a batch or alone."""
    obs = files.random_inputs(policy, 100, policy.env.obs_dtype, seed=5)["obs"]
    rows = policy(obs)
    assert {*rows.ravel().tolist()} == {0, 1}
    assert all(map(MultiBinary(4).contains, [*rows, policy(obs[0])]))


@pytest.mark.parametrize(
    ("policy", "space"),
    [("ppo one choice", MultiDiscrete([5], start=[2])), ("ppo one flag", MultiBinary(1))],
    indirect=["policy"],
)
def test_a_row_of_one_choice_is_a_row(policy, space, tmp_path):
    """In Python, alone and in a batch, and in a file: no number alone, which the space does not take."""
    obs = files.random_inputs(policy, 100, policy.env.obs_dtype, seed=5)["obs"]
    rows = policy(obs)
    assert rows.shape == (100, 1)
    assert all(map(space.contains, [*rows, policy(obs[0])]))
    export_torchscript(policy, tmp_path / "policy.pt")
    np.testing.assert_array_equal(torch.jit.load(tmp_path / "policy.pt")(torch.from_numpy(obs)), rows)


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [("own act", LOW, HIGH), ("own act bounded in part", [0.0, -np.inf], [np.inf, 0.0])],
    indirect=["policy"],
)
def test_what_an_act_of_ones_own_gives_beyond_the_bounds_is_clipped(policy, low, high):
    """Drawn, as samplers put it into rollouts, and without exploration, as everybody else takes it."""
    inputs = files.random_inputs(policy, 1000, policy.env.obs_dtype, seed=5)
    rows = torch.from_numpy(policy.actor._rows(inputs["obs"]))
    free = policy.actor.algorithm.act(rows, greedy=True).numpy()
    expected = np.clip(free, low, high)
    assert (free != expected).any(0).all()
    drawn, _ = policy.act(inputs["obs"], np.random.default_rng(0))
    for action in (drawn, policy.mode(inputs["obs"]), policy(**inputs)):
        np.testing.assert_array_equal(action, expected)
        assert action.dtype == np.float32


@pytest.mark.parametrize(
    "policy", ["sac", "dqn colours", "ppo starts", "own act", "dqn memory"], indirect=True
)
def test_torchscript_acts_as_the_policy_does(policy, tmp_path):
    """It needs torch alone."""
    path = tmp_path / "policy.pt"
    assert export_torchscript(policy, path, policy.env.obs_dtype) <= 1e-5
    module = torch.jit.load(path)
    inputs = files.random_inputs(policy, 7, policy.env.obs_dtype, seed=6)
    given = module(*(torch.from_numpy(rows.copy()) for rows in inputs.values()))
    action = given[0] if policy.memory_size else given
    np.testing.assert_allclose(action, policy(**inputs), rtol=1e-5, atol=1e-5)
    if policy.memory_size:
        np.testing.assert_allclose(given[1], inputs["memory"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["sac"], indirect=True)
def test_a_file_that_acts_otherwise_is_refused(policy, tmp_path, monkeypatch):
    """And leaves the one that was there."""
    path = tmp_path / "policy.pt"
    path.write_bytes(b"before")
    other = make_policy(*POLICIES["td3"])
    monkeypatch.setattr(files, "Deterministic", lambda _, kind=files.Deterministic: kind(other))
    with pytest.raises(SpreezeError, match="differs from the policy by"):
        export_torchscript(policy, path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("policy", ["sac"], indirect=True)
def test_a_file_that_gives_nan_is_refused(policy, tmp_path):
    """As a runtime may that computes otherwise: NaN is no small difference."""

    def torn(inputs):
        return [np.full_like(policy(**inputs), np.nan)]

    with pytest.raises(SpreezeError, match="differs from the policy by inf on random observations"):
        files._export(policy, tmp_path / "policy.onnx", "float32", "ONNX", lambda *_: torn)


@pytest.mark.parametrize("policy", ["sac"], indirect=True)
@pytest.mark.parametrize("wraps", [False, True])
def test_an_onnxscript_that_is_too_old_for_torch_is_named(policy, wraps, tmp_path):
    """And not the policy, of which that says nothing. Torch asks it for a module of each of its releases."""

    def write(*_):
        try:
            importlib.import_module("onnxscript._framework_apis.torch_99_0")
        except ImportError as error:
            if not wraps:
                raise
            raise RuntimeError("Failed to export the model") from error

    with pytest.raises(InputError, match=r"torch_99_0.*: pip install -U onnx onnxscript"):
        files._export(policy, tmp_path / "policy.onnx", "float32", "ONNX", write)


@pytest.mark.parametrize("export", [export_onnx, export_torchscript])
def test_what_cannot_be_traced_is_one_line(export, tmp_path, monkeypatch):
    """An act() that branches on its observations."""
    monkeypatch.setattr(actor, "_loaders", [])
    register_class_loader(loader_of_modules(["tests.unit.evaluation.export.own"]))
    policy = make_policy("tests.unit.evaluation.export.own:Hesitating", BOX, SMALL)
    with pytest.raises(SpreezeError) as raised:
        export(policy, tmp_path / "policy.file")
    assert len(str(raised.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("policy", ["sac"], indirect=True)
def test_a_missing_folder_is_named(policy, tmp_path):
    """Before anything is traced."""
    with pytest.raises(InputError, match="there is no folder"):
        export_onnx(policy, tmp_path / "none" / "policy.onnx")


@pytest.mark.parametrize("export", [export_onnx, export_torchscript])
@pytest.mark.parametrize("policy", ["sac plain"], indirect=True)
def test_a_disk_that_is_full_is_one_line(export, policy, tmp_path):
    """As where a limit of a file's size is reached in the middle; nothing is left."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(InputError, match=r"policy\.file cannot be written: File too large"):
            export(policy, tmp_path / "policy.file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
