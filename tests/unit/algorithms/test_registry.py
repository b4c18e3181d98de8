"""The registry, the options and what an algorithm refuses."""

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.declarations import PARTS
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.base.rollout import ARRAY_FIELDS
from spreeze_zmq.base.schema import options_of
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.forms import obs_parts


def test_importing_the_registry_costs_no_torch():
    """The launcher and the samplers read options without loading 200 MB of library."""
    code = "import sys, spreeze_zmq.algorithms as a; a.get('sac').Options(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_algorithm_names_the_nearest():
    """One line that says what would have been right."""
    with pytest.raises(InputError, match=r"unknown algorithm 'sacc'; did you mean \"sac\"\?"):
        algorithms.get("sacc")
    with pytest.raises(
        InputError, match="known: discrete_sac, dqn, ppo, pqn, sac, td3, td3_bc; your own is named"
    ):
        algorithms.get("zzz")


def test_every_registered_algorithm_is_complete():
    """Its fields are those of a rollout, and every option says what it is for."""
    for name in algorithms.names():
        algorithm = algorithms.get(name)
        assert {field for part in PARTS for field in algorithm.fields_of(part)} <= set(ARRAY_FIELDS)
        assert all(option.help for option in options_of(algorithm.Options))
        assert algorithm.Options() == algorithm.Options()


def test_the_actor_asks_for_observations_alone():
    """What it does not need never travels to it."""
    assert algorithms.get("sac").fields_of("policy") == ("obs",)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("learning_rate", -1.0, "learning_rate: expected a number of at least 0, got -1"),
        ("gamma", 1.5, "gamma: expected a number of at least 0 and at most 1, got 1.5"),
        ("gamma", float("nan"), "gamma: expected a number of at least 0 and at most 1, got nan"),
        ("batch_size", "many", 'batch_size: expected a whole number of at least 1 or "auto", got "many"'),
        ("batch_size", True, "batch_size: expected a whole number of at least 1"),
        ("target_entropy", "big", 'target_entropy: expected a number or "auto", got "big"'),
        ("activation", "gelu", 'activation: expected one of "relu", "elu", "silu", "tanh", got "gelu"'),
        (
            "hidden_sizes",
            (256, 0),
            "hidden_sizes: expected a list of whole numbers of at least 1",
        ),
        ("log_std_min", 2.0, "must lie below log_std_max"),
        ("learning_starts", 2_000_000, "can never be reached"),
    ],
)
def test_an_option_outside_its_limits_is_refused(option, value, message):
    """With its name, its value and what is allowed."""
    with pytest.raises(InputError) as caught:
        SAC.Options(**{option: value})
    assert message in str(caught.value)


def test_options_come_from_a_plain_table():
    """Lists become tuples, whole numbers become floats, and a misspelt name is told the right one."""
    options = algorithms.options_from(SAC.Options, {"hidden_sizes": [64, 32], "tau": 1})
    assert options.hidden_sizes == (64, 32)
    assert isinstance(options.tau, float)
    with pytest.raises(InputError, match='did you mean "batch_size"'):
        algorithms.options_from(SAC.Options, {"batchsize": 3})


MOVING = """
from dataclasses import dataclass
from spreeze_zmq.algorithms import option
from spreeze_zmq.algorithms.sac import SAC
class Mine(SAC):
    @dataclass(frozen=True)
    class Options(SAC.Options):
        planned: {} = option({}, "of steps", {})
"""


@pytest.mark.parametrize("moves", ["schedule=True", "follows='sqrt'"])
@pytest.mark.parametrize(
    ("name", "annotation", "default"),
    [("int", "int", 5), ("bool", "bool", True), ("floats", "tuple[float, ...]", (0.5,))],
)
def test_an_option_that_may_move_is_a_float(tmp_path, monkeypatch, moves, name, annotation, default):
    """Samplers and learners would refuse the number that it has become, which nobody wrote."""
    module = f"moving_{name}_{moves[:8]}"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{module}.py").write_text(MOVING.format(annotation, default, moves))
    said = f"{module}:Mine: its option planned is of type {name}, and {moves} makes it move: "
    said += f"what moves is a float; write planned: float, or leave {moves} out"
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        algorithms.get(f"{module}:Mine")
    (tmp_path / f"{module}_2.py").write_text(MOVING.format("float", 5, moves))
    assert algorithms.get(f"{module}_2:Mine").Options().planned == 5


def test_options_cannot_change():
    """What a run was started with is what it runs with."""
    with pytest.raises(FrozenInstanceError):
        SAC.Options().tau = 0.5


BOUNDS = {"action_low": np.array([-1.0], np.float32), "action_high": np.array([1.0], np.float32)}


def environment(**changes):
    """Two observations, one action."""
    about = {"id": "Mine-v0", "kwargs": {}, "obs_shape": (2,), "obs_dtype": "float32"}
    return EnvironmentSpec(**{**about, "action_kind": "box", "action_shape": (1,), **BOUNDS, **changes})


DISCRETE = {"action_kind": "discrete", "action_shape": (), "action_sizes": (3,)}
BOUNDED = {"action_kind": "box", "action_shape": (1,), **BOUNDS}
UNBOUNDED = {"action_low": None, "action_high": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {**UNBOUNDED, **DISCRETE},
            "SAC acts in box .* is discrete; algorithm = 'discrete_sac', 'dqn', 'ppo' or 'pqn' could",
        ),
        (UNBOUNDED, "finite bounds.*; algorithm = 'ppo' could"),
    ],
)
def test_an_environment_that_no_policy_can_act_in_is_refused(changes, message):
    """Before any network is made, with the shipped algorithms that could."""
    sac = algorithms.get("sac")
    for part in PARTS:
        with pytest.raises(InvalidEnvironment, match=message):
            algorithms.make(part, sac, sac.Options(), environment(**changes), "cpu", 0)


@pytest.mark.parametrize("shape", [(4, 96, 96, 3), (4, 84, 84, 1)])
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_stack_of_images_is_no_vector_unless_that_is_said(name, shape):
    """As FrameStackObservation gives it; what is no stack of images may have four dimensions."""
    env, kind = environment(obs_shape=shape, obs_dtype="uint8", **DISCRETE), algorithms.get(name)
    assert algorithms.suited(env) == "dqn"
    says = rf"return the last one, \[{shape[1]}, .*, with algorithm.frame_stack = 4, or .* = \"mlp\""
    with pytest.raises(InvalidEnvironment, match=says):
        algorithms.check(kind, kind.Options(), env)
    algorithms.check(kind, kind.Options(network="mlp"), env)
    for other in ((64, 64, 64, 1), (4, 8, 8, 3)):
        algorithms.check(kind, kind.Options(), replace(env, obs_shape=other))
    with pytest.raises(InvalidEnvironment, match=says):
        algorithms.check(type("Heir", (kind,), {"__module__": "mine"}), kind.Options(), env)
    own = {"__module__": "mine", "networks": lambda self: kind.networks(self)}
    algorithms.check(type("Video", (kind,), own), kind.Options(), env)


def with_lens(side):
    """Observations of a camera and 20 joints."""
    return Dict({"joints": Box(-1.0, 1.0, (20,), np.float32), "lens": Box(0, 255, (side, side, 3), np.uint8)})


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("sac", {"action_kind": "box", "action_shape": (2,), "action_low": [-1, -1], "action_high": [1, 1]}),
        ("ppo", {"action_kind": "box", "action_shape": (2,)}),
        ("ppo", {"obs_shape": (36, 36, 3), "obs_dtype": "uint8", **BOUNDED}),
        ("sac", {"obs_shape": (8, 8, 3), "obs_dtype": "uint8", **BOUNDED}),
        ("ppo", {"obs_shape": (21188,), "obs_parts": obs_parts(with_lens(84)), **BOUNDED}),
        ("ppo", {"obs_shape": (21188,), "obs_parts": obs_parts(with_lens(84)), **DISCRETE}),
        ("sac", {"obs_shape": (212,), "obs_parts": obs_parts(with_lens(8)), **BOUNDED}),
        ("ppo", {"action_kind": "discrete", "action_sizes": (3,)}),
        ("ppo", {"action_kind": "multi_discrete", "action_shape": (2,), "action_sizes": (3, 2)}),
        (
            "dqn",
            {"obs_shape": (84, 84), "obs_dtype": "uint8", "action_kind": "discrete", "action_sizes": (3,)},
        ),
    ],
)
def test_the_spaces_choose_an_algorithm_that_can_act_there(name, spec):
    """Where the user names none."""
    env = EnvironmentSpec(**{"id": "Own-v0", "kwargs": {}, "obs_shape": (4,), "obs_dtype": "float32", **spec})
    assert algorithms.suited(env) == name
