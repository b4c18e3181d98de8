"""An environment that no Python program makes, described in the topology."""

import json

import pytest

from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.commands import check
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import Plan

BOX = {"obs_shape": [11], "action_low": [-1.0, -2.0], "action_high": [1.0, 2.0]}


@pytest.fixture
def mine(tmp_path):
    """Such a sampler."""
    return own_sampler(tmp_path)


def own_sampler(folder):
    """Make a folder that of a sampler of one's own, as a topology writes it."""
    options = "".join(
        f'[options.{name}]\ntype = "int"\ndefault = 16\nhelp = "a number"\n'
        for name in ("envs", "rollout_steps")
    )
    (folder / "component.toml").write_text(f'role = "sampler"\ncommand = ["true"]\n{options}')
    return {"sampler": {"use": str(folder), "count": 1}}


def load(components, **run):
    """The plan of a crane."""
    return topology.load({"run": {"env": "crane", **run}, "components": components})


def test_it_is_what_run_json_says_of_the_environment(mine):
    """Box, discrete and multi-discrete actions; nothing is made, and the plan comes back as it was."""
    plan = load(mine, **BOX, max_episode_steps=500)
    about = json.loads(plan.to_json())["environment"]
    assert about["id"] == "crane"
    assert about["described"] is True
    assert (about["obs_shape"], about["obs_dtype"], about["max_episode_steps"]) == ([11], "float32", 500)
    assert (about["action_kind"], about["action_shape"]) == ("box", [2])
    assert (about["action_low"], about["action_high"]) == ([-1.0, -2.0], [1.0, 2.0])
    assert plan.run.algorithm == "sac"
    assert Plan.from_json(plan.to_json()).environment == plan.environment
    one = load(mine, obs_shape=[84, 84, 1], obs_dtype="uint8", action_sizes=[4], algorithm="ppo").environment
    assert (one.action_kind, one.action_shape, one.num_actions) == ("discrete", (), 4)
    cells = {"obs_shape": [8, 8, 4], "obs_dtype": "uint8", "action_sizes": [4]}
    assert [load(mine, **cells, obs_max=most).environment.obs_max for most in (1, 255)] == [1, None]
    two = load(mine, obs_shape=[3], action_sizes=[2, 3]).environment
    assert (two.action_kind, two.action_shape, two.action_sizes) == ("multi_discrete", (2,), (2, 3))


def test_check_says_that_nothing_is_evaluated(mine):
    """By the shipped evaluator, which cannot make it."""
    plan = load(mine, **BOX)
    assert "no Python program makes this environment" in check.report(plan)


@pytest.mark.parametrize(
    ("run", "place", "words"),
    [
        ({"obs_shape": [3]}, "run.obs_shape", "action_low and action_high, or action_sizes"),
        ({**BOX, "action_sizes": [2]}, "run.obs_shape", "action_low and action_high, or action_sizes"),
        ({**BOX, "action_high": [1.0]}, "run.action_high", "as many numbers as action_low"),
        ({**BOX, "action_high": [1.0, -3.0]}, "run.action_high", "each above it"),
        ({**BOX, "action_high": ["1"]}, "run.action_high", "a list of numbers"),
        ({"obs_shape": [3], "action_sizes": []}, "run.action_sizes", "at least one number"),
        ({**BOX, "obs_max": 1}, "run.obs_max", "bytes"),
        ({**BOX, "obs_dtype": "uint8", "obs_max": 256}, "run.obs_max", "at most 255"),
        ({**BOX, "obs_shape": []}, "run.obs_shape", "at least one number"),
        ({**BOX, "stop": {"return": 1.0}}, "run.stop.return", "nothing is evaluated"),
        ({**BOX, "randomize": {"body_mass": [0.9, 1.1]}}, "run.randomize", "only the shipped sampler"),
    ],
)
def test_a_mistake_is_named_where_it_stands(mine, run, place, words):
    """With what was expected."""
    with pytest.raises(TopologyError) as error:
        load(mine, **run)
    assert place in str(error.value)
    assert words in str(error.value)


def test_the_shipped_sampler_cannot_make_it():
    """It says which one could."""
    with pytest.raises(TopologyError, match="the shipped sampler cannot make crane"):
        load({}, **BOX)


def test_its_keys_alone_are_a_mistake():
    """They say nothing of an environment that is made."""
    with pytest.raises(TopologyError, match=r"set it in run\.env_kwargs"):
        topology.load({"run": {"env": "Pendulum-v1", "max_episode_steps": 50}})
