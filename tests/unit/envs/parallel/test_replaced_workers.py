"""When a worker is replaced, and how its environments go on."""

import os
import signal
import time

import numpy as np

from tests.unit.envs.own_environments import Count


class Slow(Count):
    """Made in 0.2 s, and reset in as long."""

    def __init__(self, index):
        time.sleep(0.2)
        super().__init__(length=2 + index)

    def reset(self, **options):
        """As a simulator that loads its scene."""
        time.sleep(0.2)
        return super().reset(**options)


class Seeded(Count):
    """Observes the seed of its last reset; raises where its action is above a half."""

    def reset(self, *, seed=None, options=None):
        """Keep the seed."""
        super().reset(seed=seed)
        return np.array([seed or 0.0, 0.0]), {}

    def step(self, action):
        """Raise where it is asked to."""
        if action[0] > 0.5:
            raise OSError("asked to")
        return super().step(action)


def test_a_worker_hangs_only_where_one_environment_does(make):
    """Not where its whole share takes longer: in a reset, in a step, or once it is replaced."""
    options = {"num_workers": 1, "step_timeout_s": 1.4, "max_failures": 1}
    env = make(f"{__name__}:Slow", 8, index="{index}", **options)
    env.reset()
    env.step(np.zeros((8, 1)))
    assert env.step(np.zeros((8, 1)))[2].tolist() == [True, *[False] * 7]
    os.kill(int(env.slots.pids[0]), signal.SIGKILL)
    assert env.step(np.zeros((8, 1)))[3].all()
    assert env.failures.count == 1


def test_no_seed_of_an_episode_after_a_failure_comes_twice(make):
    """Not after the process that counted them has been replaced either."""
    env, seeds = make(f"{__name__}:Seeded", 1, num_workers=1, seed=5), []
    env.reset()
    for action in (1.0, 1.0, None, 1.0, None, 1.0):
        if action is None:
            os.kill(int(env.slots.pids[0]), signal.SIGKILL)
        seeds.append(env.step(np.full((1, 1), action or 0.0))[0][0, 0])
    assert len(set(seeds)) == 6
