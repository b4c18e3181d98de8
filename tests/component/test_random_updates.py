"""Updates that only measure; the test holds a run's plan."""

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.learner.random_updates import RandomUpdates


@pytest.mark.parametrize("role", ["critic_learner", "actor_learner"])
def test_random_updates_touch_nothing_of_the_run(peers, role):
    """Neither a half made of the same options and seed, nor torch's own random numbers."""
    plan = peers.plan
    values = {name: value for name, value in plan.algorithm.items() if name != "name"}
    algorithm = algorithms.get("sac")
    options = algorithms.options_from(algorithm.options, values)
    make = algorithm.make_critic if role == "critic_learner" else algorithm.make_actor
    half, state = make(options, plan.environment, "cpu", 1), torch.get_rng_state()
    before = half.weights.clone()
    trial = RandomUpdates(plan, role, torch.device("cpu"), 256)
    trial.update(64, 3)
    assert trial.half.num_updates == 3
    assert torch.equal(half.weights, before)
    assert half.num_updates == 0
    assert torch.equal(torch.get_rng_state(), state)
