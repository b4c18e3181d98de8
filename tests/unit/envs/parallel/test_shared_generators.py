"""Environments that draw from the generators which all code of a process shares."""

import os
import random
import signal

import numpy as np
import torch
from gymnasium.spaces import Box

from tests.unit.envs.own_environments import Count


def draw():
    """One number each of NumPy's generator, of Python's and of torch's."""
    return np.array([np.random.rand(), random.random(), float(torch.rand(()))])


class Drawing(Count):
    """Observes what is drawn."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def reset(self, **options):
        """Draw."""
        super().reset(**options)
        return draw(), {}

    def step(self, action):
        """Draw."""
        return draw(), *super().step(action)[1:]


def test_no_two_workers_and_lives_draw_alike_and_a_seed_repeats_them(make):
    """Workers are forks of one process, whose modules hold the generators."""
    drawn = []
    for _ in range(2):
        env = make(f"{__name__}:Drawing", 3, num_workers=3, seed=7, length=99, max_failures=1)
        seen = [env.reset()[0], env.step(np.zeros((3, 1)))[0]]
        for pid in env.slots.pids.tolist()[:1]:
            os.kill(pid, signal.SIGKILL)
        seen += [env.step(np.zeros((3, 1)))[0] for _ in range(2)]
        drawn.append(np.concatenate(seen))
    np.testing.assert_array_equal(*drawn)
    assert [len(np.unique(column)) for column in drawn[0].T] == [12, 12, 12]
