"""A sparse task of goals, learned by real processes with hindsight, and not without."""

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import Policy
from tests.system.conftest import BORNE_OUT, adds_up
from tests.system.maze import Maze

SETTINGS = {
    "run.env": '"tests.system.maze:Maze"',
    "run.stop.minutes": 10,
    "run.stop.return": "none",
    "run.stop.env_steps": 30_000,  # hindsight takes 10,000 to 24,000
    "algorithm.hidden_sizes": "[64, 64]",
    "algorithm.batch_size": 256,
    "algorithm.gamma": 0.95,
    "algorithm.learning_rate": 1e-3,
    "algorithm.tau": 0.02,
    "balance.replay_ratio": 16,
    "components.sampler.count": 1,
    "components.sampler.envs": 16,
}


def started(launch, **more):
    """A run with some settings more."""
    settings = {**SETTINGS, **more}
    return launch(
        *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
        topology="pendulum",
    )


def successes(policy, episodes=100):
    """The share of episodes that are at the goal in the end."""
    env, found = Maze(), 0
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        over = False
        while not over:
            obs, _, _, over, info = env.step(policy(obs))
        found += info["is_success"]
    return found / episodes


@pytest.mark.long("a sparse task is trained")
@pytest.mark.timeout(700)
def test_a_sparse_task_is_learned_in_hindsight(launch):
    """In most fresh episodes, from a reward that random actions do not find; the account of samples is
    that of the steps taken, not of the goals that they are kept with.
    """
    run = started(launch, **{"algorithm.hindsight": '"future"'})
    assert run.end(630) == 0, run.said()
    summary = run.summary()
    assert summary["exit_reason"].startswith("env_steps"), run.said()
    assert summary["failures"] == []
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    policy = Policy.load(run.folder)
    assert successes(policy) >= BORNE_OUT
    flat = gymnasium.spaces.flatten(Maze().observation_space, Maze().reset(seed=1)[0])
    assert np.array_equal(policy(flat), policy(Maze().reset(seed=1)[0]))


@pytest.mark.thorough
@pytest.mark.timeout(700)
def test_without_hindsight_it_is_not_learned(launch):
    """In as many steps."""
    run = started(launch)
    assert run.end(630) == 0, run.said()
    assert run.summary()["exit_reason"].startswith("env_steps"), run.said()
    assert max(mean for _, _, mean, *_ in run.summary()["evaluations"]) < -45
