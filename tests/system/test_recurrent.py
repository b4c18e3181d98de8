"""A policy that remembers, trained and played by real processes."""

import re

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import Policy
from spreeze_zmq.commands import spreeze
from tests.system import recall  # noqa: F401 - registers its tasks
from tests.system.conftest import BORNE_OUT, adds_up, said_in, thorough_but

SETTINGS = {
    "run.env": '"tests.system.recall:Recall"',
    "run.stop.return": 0.9,
    "run.stop.minutes": 10,
    "algorithm.memory_size": 16,
    "components.sampler.envs": 16,
}
#: From rounds, and from sequences in a replay, which begin within episodes.
OF = {
    "cartpole": {
        "algorithm.batch_size": 192,
        "algorithm.epochs": 4,
        "components.sampler.envs": 64,
        "components.sampler.rollout_steps": 12,
    },
    "cartpole_dqn": {
        "algorithm.batch_size": 120,
        "algorithm.sequence_length": 12,
        "components.sampler.rollout_steps": 12,
    },
    "pendulum": {
        "run.env": '"tests.system.recall:RecallSign"',
        "algorithm.batch_size": 240,
        "algorithm.n_step": 3,
        "algorithm.sequence_length": 12,
        "components.sampler.rollout_steps": 12,
    },
}


@pytest.mark.long("a policy with a memory is trained")
@pytest.mark.timeout(700)
@pytest.mark.parametrize("topology", thorough_but("cartpole", "pendulum", of=OF))
def test_a_task_that_needs_a_memory_is_learned(launch, topology):
    """Without one every policy has a mean return of 0. `spreeze eval` and Python play what was scored."""
    settings = {**SETTINGS, **OF[topology]}
    words = (word for name, value in settings.items() for word in ("--set", f"{name}={value}"))
    run = launch(*words, topology=topology)
    assert run.end(630) == 0, run.said()
    summary = run.summary()
    assert summary["exit_reason"].startswith("return"), run.said()
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert summary["failures"] == []
    policy = Policy.load(run.folder)
    seed = policy.metadata["evaluation_seed"]
    code, said, errors = said_in(run.folder, "eval", run.folder, "--seed", seed, main=spreeze.main)
    assert code == 0, errors
    again, claimed = re.search(r"mean return ([-0-9.]+) .*when it was saved: ([-0-9.]+)", said, re.S).groups()
    assert again == claimed

    env = gymnasium.make(settings["run.env"].strip('"').split(":")[1] + "-v0")
    assert mean_return(policy, env) >= BORNE_OUT


def mean_return(policy, env):
    """Of 40 episodes; ``policy(obs, memory)`` overwrites the memory."""
    total = 0.0
    for seed in range(40):
        (obs, _), memory, over = env.reset(seed=seed), np.zeros(16, np.float32), False
        while not over:
            obs, reward, over, _, _ = env.step(policy(obs, memory))
        total += reward
    return total / 40
