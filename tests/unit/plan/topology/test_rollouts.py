"""How long rollouts are where a topology does not say it."""

from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from spreeze_zmq.algorithms import option, with_default
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.plan.topology import load

HERE = "tests.unit.plan.topology.test_rollouts"
BOX = {"obs_shape": [11], "action_low": [-1.0], "action_high": [1.0]}
PARTS = {"obs_shape": [3], "action_sizes": [4]}
EXAMPLES = ("examples/sampler_python", "examples/sampler_node")
IMAGE = {**BOX, "obs_shape": [84, 84, 1], "obs_dtype": "uint8"}
BYTES = {**BOX, "obs_dtype": "uint8"}
LENS = {"env": f"{HERE}:Lens"}


class Lens(gymnasium.Env):
    """A camera whose images are floats, beside a joint."""

    observation_space = Dict(
        {"lens": Box(0.0, 1.0, (3, 32, 32), np.float32), "joint": Box(-1.0, 1.0, (1,), np.float32)}
    )
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Black."""
        super().reset(seed=seed)
        return {"lens": np.zeros((3, 32, 32), np.float32), "joint": np.zeros(1, np.float32)}, {}

    def step(self, action):
        """As before."""
        return self.reset()[0], 0.0, False, False, {}


class Plain(PPO):
    """Has another default of its own, and an option more."""

    @dataclass(frozen=True)
    class Options(PPO.Options):
        """As the class says."""

        normalize_rewards: bool = with_default(PPO.Options, "normalize_rewards", False)
        bonus: float = option(0.1, "of something")


class Plainer(Plain):
    """Inherits it."""


class Lazy(PPO):
    """As :class:`Plain`, without annotations in the class's dict, as from Python 3.14 on."""

    @dataclass(frozen=True)
    class Options(PPO.Options):
        """As the class says."""

        normalize_rewards: bool = with_default(PPO.Options, "normalize_rewards", False)

    del Options.__annotations__


class Suited(Plain):
    """Says again what suits a box."""

    box_options = PPO.box_options


@pytest.mark.parametrize(
    ("task", "algorithm", "sampler", "steps"),
    [
        (BOX, {"name": "ppo"}, {"count": 1}, 128),
        (BOX, {"name": "ppo"}, {"count": 2, "envs": 8}, 128),
        (BOX, {"name": "ppo"}, {"count": 14}, 16),
        (BOX, {"name": "ppo"}, {"count": 1, "rollout_steps": 16}, 16),
        (PARTS, {"name": "ppo"}, {"count": 1}, 16),
        (IMAGE, {"name": "ppo"}, {"count": 1}, 16),
        (IMAGE, {"name": "ppo", "network": "mlp"}, {"count": 1}, 128),
        (BYTES, {"name": "ppo"}, {"count": 1}, 128),
        (BOX, {"name": f"{HERE}:Plain"}, {"count": 1}, 128),
        (BOX, {"name": "sac"}, {"count": 1}, 16),
        (BOX, {"name": "sac", "memory_size": 8, "sequence_length": 32}, {"count": 1}, 32),
        (BOX, {"name": "sac", "sequence_length": 32}, {"count": 1}, 16),
        (BOX, {"name": "ppo", "memory_size": 8}, {"count": 1}, 128),
    ],
)
@pytest.mark.parametrize("shipped", ["sampler", "sampler_cpp", *EXAMPLES])
def test_rollouts_are_as_long_as_what_learns_from_them_needs(shipped, task, algorithm, sampler, steps):
    """Rounds of about 2,048 for PPO in a box of vectors, whatever the number of samplers; a sequence for a
    memory that learns from a replay; what is stated stays.
    """
    options = dict(algorithm)
    tables = {
        "run": {"env": "crane", "algorithm": options.pop("name"), **task},
        "algorithm": {**options, "batch_size": 64} if "memory_size" in options else options,
        "components": {"sampler": {"use": f"components/{shipped}", "envs": 16, **sampler}},
    }
    plan = load(tables)
    found = plan.components["sampler"].options["rollout_steps"]
    assert found == steps
    assert plan.balance.rollout_transitions == steps * plan.components["sampler"].options["envs"]


CPP = {"sampler": {"use": "components/sampler_cpp"}}


@pytest.mark.parametrize(
    ("task", "algorithm", "normalised"),
    [
        (BOX, "ppo", True),
        (BYTES, "ppo", True),
        (PARTS, "ppo", False),
        (IMAGE, "ppo", False),
        (LENS, "ppo", False),
        (BOX, "sac", False),
    ],
)
def test_ppo_normalises_in_a_box_of_vectors(task, algorithm, normalised):
    """Observations and rewards, as everybody's settings for MuJoCo do; what is stated stays. Vectors are what
    no convolutions take, of whatever numbers.
    """
    run = {"env": "crane", "algorithm": algorithm, **task}
    tables = {"run": run} if task is LENS else {"run": run, "components": CPP}
    found = load(tables).algorithm
    assert found["normalize_observations"] is normalised
    assert found["normalize_rewards"] in ((normalised,) if algorithm == "ppo" else ("auto",))
    stated = load({**tables, "algorithm": {"normalize_observations": not normalised}}).algorithm
    assert stated["normalize_observations"] is not normalised


@pytest.mark.parametrize(
    ("name", "rewards"), [("Plain", False), ("Plainer", False), ("Lazy", False), ("Suited", True)]
)
def test_another_default_of_an_algorithm_that_inherits_ppo_is_its_own(name, rewards):
    """In a box too, where it gets what it does not say as ppo does; a topology may change either."""
    tables = {"run": {"env": "crane", "algorithm": f"{HERE}:{name}", **BOX}, "components": CPP}
    found = load(tables).algorithm
    assert (found["normalize_observations"], found["normalize_rewards"]) == (True, rewards)
    stated = load({**tables, "algorithm": {"normalize_rewards": not rewards}}).algorithm
    assert stated["normalize_rewards"] is not rewards
