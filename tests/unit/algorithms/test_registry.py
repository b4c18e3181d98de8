"""The registry, the options and what an algorithm refuses."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.sac import SACOptions
from spreeze_zmq.errors import InputError, InvalidEnvironment
from spreeze_zmq.rollout import ARRAY_FIELDS


def test_importing_the_registry_costs_no_torch():
    """The launcher and the samplers read options without loading 200 MB of library."""
    code = "import sys, spreeze_zmq.algorithms as a; a.get('sac').options(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_algorithm_names_the_nearest():
    """One line that says what would have been right."""
    with pytest.raises(InputError, match=r"unknown algorithm 'sacc'; did you mean 'sac'\?"):
        algorithms.get("sacc")
    with pytest.raises(InputError, match="there is sac"):
        algorithms.get("zzz")


def test_every_registered_algorithm_is_complete():
    """Its fields are those of a rollout, and every option says what it is for."""
    for name in algorithms.names():
        algorithm = algorithms.get(name)
        assert algorithm.name == name
        assert {*algorithm.critic_fields, *algorithm.actor_fields} <= set(ARRAY_FIELDS)
        assert all(option.metadata["help"] for option in fields(algorithm.options))
        assert algorithm.options() == algorithm.options()


def test_the_actor_asks_for_observations_alone():
    """What it does not need never travels to it."""
    assert algorithms.get("sac").actor_fields == ("obs",)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("learning_rate", -1.0, "learning_rate = -1: expected at least 0"),
        ("gamma", 1.5, "gamma = 1.5: expected at least 0 and at most 1"),
        ("gamma", float("nan"), "gamma = nan"),
        ("batch_size", "many", "batch_size = 'many': expected a number"),
        ("batch_size", True, "batch_size = True: expected a number"),
        ("target_entropy", "big", 'expected a number or "auto"'),
        ("activation", "gelu", "expected one of relu, elu, silu, tanh"),
        ("hidden_sizes", (256, 0), "hidden_sizes = 0"),
        ("log_std_min", 2.0, "must lie below log_std_max"),
        ("learning_starts", 2_000_000, "can never be reached"),
    ],
)
def test_an_option_outside_its_limits_is_refused(option, value, message):
    """With its name, its value and what is allowed."""
    with pytest.raises(InputError) as caught:
        SACOptions(**{option: value})
    assert message in str(caught.value)


def test_options_come_from_a_plain_table():
    """Lists become tuples, whole numbers become floats, and a misspelt name is told the right one."""
    options = algorithms.options_from(SACOptions, {"hidden_sizes": [64, 32], "tau": 1})
    assert options.hidden_sizes == (64, 32)
    assert isinstance(options.tau, float)
    with pytest.raises(InputError, match="did you mean 'batch_size'"):
        algorithms.options_from(SACOptions, {"batchsize": 3})


def test_options_cannot_change():
    """What a run was started with is what it runs with."""
    with pytest.raises(FrozenInstanceError):
        SACOptions().tau = 0.5


def environment(**changes):
    """Two observations, one action."""
    about = {
        "obs_shape": (2,),
        "obs_dtype": "float32",
        "action_kind": "box",
        "action_shape": (1,),
        "action_low": np.array([-1.0], np.float32),
        "action_high": np.array([1.0], np.float32),
    }
    return SimpleNamespace(**{**about, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"action_kind": "discrete", "action_low": None},
            "acts in box action spaces, this",
        ),
        ({"action_high": np.array([np.inf], np.float32)}, "finite bounds"),
        ({"action_high": np.array([-1.0], np.float32)}, "bound is empty"),
    ],
)
def test_an_environment_that_no_policy_can_act_in_is_refused(changes, message):
    """Before any network is made."""
    sac = algorithms.get("sac")
    for make in (sac.make_critic, sac.make_actor):
        with pytest.raises(InvalidEnvironment, match=message):
            make(sac.options(), environment(**changes), "cpu", 0)
