"""How long rollouts are where a topology does not say it."""

import pytest

from spreeze_zmq.plan.topology import load

BOX = {"obs_shape": [11], "action_low": [-1.0], "action_high": [1.0]}
PARTS = {"obs_shape": [3], "action_sizes": [4]}
IMAGE = {**BOX, "obs_shape": [84, 84, 1], "obs_dtype": "uint8"}


@pytest.mark.parametrize(
    ("task", "algorithm", "sampler", "steps"),
    [
        (BOX, {"name": "ppo"}, {"count": 1}, 128),
        (BOX, {"name": "ppo"}, {"count": 2, "envs": 8}, 128),
        (BOX, {"name": "ppo"}, {"count": 14}, 16),
        (BOX, {"name": "ppo"}, {"count": 1, "rollout_steps": 16}, 16),
        (PARTS, {"name": "ppo"}, {"count": 1}, 16),
        (IMAGE, {"name": "ppo"}, {"count": 1}, 16),
        (BOX, {"name": "sac"}, {"count": 1}, 16),
        (BOX, {"name": "sac", "memory_size": 8, "sequence_length": 32}, {"count": 1}, 32),
        (BOX, {"name": "sac", "sequence_length": 32}, {"count": 1}, 16),
        (BOX, {"name": "ppo", "memory_size": 8}, {"count": 1}, 128),
    ],
)
@pytest.mark.parametrize("shipped", ["sampler", "sampler_cpp"])
def test_rollouts_are_as_long_as_what_learns_from_them_needs(shipped, task, algorithm, sampler, steps):
    """Rounds of about 2,048 for PPO in a box of vectors, whatever the number of samplers; a sequence for a
    memory that learns from a replay; what is stated stays.
    """
    options = dict(algorithm)
    tables = {
        "run": {"env": "crane", "algorithm": options.pop("name"), **task},
        "algorithm": {**options, "batch_size": 64} if "memory_size" in options else options,
        "components": {"sampler": {"use": f"components/{shipped}", **sampler}},
    }
    plan = load(tables)
    found = plan.components["sampler"].options["rollout_steps"]
    assert found == steps
    assert plan.balance.rollout_transitions == steps * plan.components["sampler"].options["envs"]


@pytest.mark.parametrize(
    ("task", "algorithm", "normalised"),
    [(BOX, "ppo", True), (PARTS, "ppo", False), (IMAGE, "ppo", False), (BOX, "sac", False)],
)
def test_ppo_normalises_in_a_box_of_vectors(task, algorithm, normalised):
    """Observations and rewards, as everybody's settings for MuJoCo do; what is stated stays."""
    run = {"env": "crane", "algorithm": algorithm, **task}
    tables = {"run": run, "components": {"sampler": {"use": "components/sampler_cpp"}}}
    found = load(tables).algorithm
    assert found["normalize_observations"] is normalised
    assert found["normalize_rewards"] in ((normalised,) if algorithm == "ppo" else ("auto",))
    stated = load({**tables, "algorithm": {"normalize_observations": not normalised}}).algorithm
    assert stated["normalize_observations"] is not normalised
