"""What the code of environments sets for its process has effect while that code runs."""

import logging
import random
import sys
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.envs import settings
from spreeze_zmq.envs.seeds import shared_generators_kept
from spreeze_zmq.learner.replayed import relabelling
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan import topology
from tests.system.maze import SIZE, Maze
from tests.unit.envs.odd_environments import Strict

STRICT = "tests.unit.envs.odd_environments:Strict"
LOGS = tuple(map(logging.getLogger, ("spreeze", "spreeze.envs")))


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """What environments of other tests have set is forgotten; loggers are as before after a test, too."""
    monkeypatch.setattr(settings, "_THEIRS", {})
    made = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    enabled = [log for log in made if not log.disabled]
    yield
    for log in enabled:
        log.disabled = False


def state():
    """How this process handles errors of numbers, where it prints, and whether it logs."""
    return np.geterr(), sys.stdout, logging.root.manager.disable, [log.disabled for log in LOGS]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("at", ["made", "reset", "step"])
def test_an_environment_that_has_numbers_raise_does_so_alone(at, num_workers):
    """Else a small weight of a policy ends its sampler, no failure is logged, and no score is printed."""
    before, noted = state(), []
    options = {"num_workers": num_workers, "max_failures": 99, "on_failure": noted.append}
    with closing(envs.make(STRICT, 2, at=at, **options)) as env:
        env.reset()
        rewards = [env.step(env.random_actions())[1].tolist() for _ in range(4)]
        env.reset()
        assert state() == before
    assert state() == before
    assert rewards == [[1, 1], [0, 0], [1, 1], [0, 0]]  # the second step fails, and begins another episode
    assert len(noted) == 4
    assert all("gave the observation [1.e+30" in failure.summary for failure in noted)


class Late(Strict):
    """Sets itself up in its first step, once another one has failed, as one that tries another device."""

    has_failed = False

    def __init__(self):
        super().__init__("step" if Late.has_failed else "never")

    def step(self, action):
        """Fail where the action is large."""
        if action[0] > 0.9:
            Late.has_failed = True
            raise OSError("no device")
        return super().step(action)


def test_what_is_set_by_an_environment_in_place_of_one_that_failed_stays_its_own(monkeypatch):
    """Its code may take another way than the first one's did."""
    monkeypatch.setattr(Late, "has_failed", False)
    before = state()
    with closing(envs.make(f"{__name__}:Late", 1, max_failures=9)) as env:
        env.reset()
        for action in (0.0, 0.95, 0.0):
            env.step(np.full((1, 1), action, np.float32))
            assert state() == before
    assert settings._THEIRS


class Careless(Maze):
    """Sets torch up for itself, and seeds whatever draws; its goals pay in the dtype that it has chosen."""

    def __init__(self):
        super().__init__()
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(torch.get_num_threads() + 1)

    def reset(self, *, seed=None, options=None):
        """Begin."""
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        return super().reset(seed=seed)

    def compute_reward(self, achieved_goal, desired_goal, info):
        """As the maze."""
        assert torch.zeros(1).dtype == torch.float64
        return super().compute_reward(achieved_goal, desired_goal, info)


def learners():
    """What a learner goes by: how torch is set up, and the next numbers of each generator."""
    drawn = random.random(), np.random.random(), torch.rand(()).item()
    return torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(), drawn


def test_a_learner_that_judges_goals_goes_by_what_the_run_sets():
    """Without gradients it would not train, and seeds by the environment were those of every run."""
    run = {"env": f"{__name__}:Careless", "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": {"hindsight": "future", "hidden_sizes": [8]}})
    half = algorithms.make("critic", *algorithm_of(plan), plan.environment, "cpu", 1)
    about = {"plan": plan, "environment": plan.environment, "role": "critic_learner"}
    with shared_generators_kept():
        before = learners()
    made = relabelling(SimpleNamespace(**about, at_end=[]), half)
    with shared_generators_kept():
        assert learners() == before
    goals = np.zeros((3, SIZE))
    assert made.goals.rewards.reward(goals, goals).shape == (3,)
