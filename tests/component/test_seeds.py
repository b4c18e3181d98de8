"""The seeds that processes give their environments, which tell them in their observations."""

import importlib
import random
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from spreeze_zmq.component import Component
from spreeze_zmq.envs.seeds import SEEDS
from spreeze_zmq.wire import rollout_from
from tests.component.samplers import CRITIC, start
from tests.component.test_evaluator import begin, evaluation, publish


class Told(gymnasium.Env):
    """Three steps; an environment in C would take no seed from 2**31 on."""

    observation_space = gymnasium.spaces.Box(0, 2**32, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Later episodes have none."""
        np.array([seed or 0], np.int32)
        self.obs, self.steps = np.array([seed or 0], np.float64), 0
        return self.obs, {}

    def step(self, action):
        """Show the seed."""
        self.steps += 1
        return self.obs, 0.0, self.steps == 3, False, {}


class Drawn(Told):
    """Shows what it draws from the generators that all code of a process shares."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float64)

    def __init__(self):
        self.torch = importlib.import_module("torch")

    def reset(self, *, seed=None, options=None):
        """Draw from each."""
        super().reset(seed=seed)
        self.obs = np.array([np.random.rand(), random.random(), float(self.torch.rand(()))])
        return self.obs, {}


ENV = "run.env=tests.component.test_seeds:Told"
#: The number that is drawn is too large.
EVALUATOR = [ENV, "run.seed=853", "run.stop={ minutes = 1 }", "components.evaluator.cost_share=1.0"]
SAMPLER = [ENV, "run.seed=1"]
DRAWING = [ENV.replace("Told", "Drawn"), "run.seed=1"]
IN_ORDER = [
    f"balance.{word}"
    for word in ("in_order=true", "slack_rollouts=0", "max_policy_lag=1", "publish_every_updates=round")
]


@pytest.mark.parametrize("peers", [EVALUATOR], indirect=True)
def test_an_evaluators_seeds_fit_into_a_c_int_however_many_looks_it_takes(peers):
    """A look plays a million seeds after the one before."""
    process = begin(peers)
    for version in (1, 2):
        publish(peers, version, seed=1)
        look = evaluation(peers)
        assert look["seed"] + look["num_episodes"] <= SEEDS
    process.kill()


@pytest.mark.parametrize(
    ("peers", "again"),
    [
        (SAMPLER, False),
        ([*SAMPLER, *IN_ORDER], True),
        (DRAWING, False),
        ([*DRAWING, *IN_ORDER], True),
    ],
    indirect=["peers"],
)
def test_a_later_life_of_a_sampler_begins_other_episodes_but_in_lockstep(peers, again):
    """What ended the first one, such as a start that the simulator cannot take, need not come again."""
    begun = {}
    for lives in (1, 2):
        process = start(peers)
        while len(begun) < lives:  # more of the first one may wait
            message = peers.next("rollout", CRITIC)
            begun.setdefault(message.incarnation, rollout_from(message).obs[0])
        process.kill()
        process.wait()
    first, second = begun.values()
    assert (first == second).all(0).tolist() == [again] * first.shape[1]


def test_a_process_of_a_run_that_goes_on_has_other_seeds(peers):
    """By the checkpoint that it goes on from; the same one gives the same."""
    component = Component("critic_learner", peers.plan, 0)

    def seed_from(point):
        run = replace(peers.plan.run, resume_from=point)
        component.plan = replace(peers.plan, run=run)
        return component.seed_sequence().generate_state(1)[0]

    seeds = [seed_from(point) for point in (None, "/run/1", "/run/2", "/run/1")]
    assert seeds[1] == seeds[3]
    assert len(set(seeds)) == 3
