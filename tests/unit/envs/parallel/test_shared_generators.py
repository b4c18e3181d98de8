"""Environments that draw from the generators which all code of a process shares."""

import os
import random
import signal

import numpy as np
import torch

from tests.unit.envs.own_environments import Count


class Drawing(Count):
    """Observes one number of NumPy's generator and one of Python's or torch's."""

    def __init__(self, library):
        super().__init__(length=99)
        self.draw = {"python": random.random, "torch": lambda: float(torch.rand(()))}[library]

    def reset(self, **options):
        """Draw."""
        super().reset(**options)
        return np.array([np.random.rand(), self.draw()]), {}

    def step(self, action):
        """Draw."""
        return np.array([np.random.rand(), self.draw()]), *super().step(action)[1:]


def test_no_two_workers_and_lives_draw_alike_and_a_seed_repeats_them(make):
    """Workers are forks of one process, whose modules hold the generators."""
    for library in ("python", "torch"):
        drawn = []
        for _ in range(2):
            env = make(f"{__name__}:Drawing", 3, num_workers=3, seed=7, library=library, max_failures=1)
            seen = [env.reset()[0], env.step(np.zeros((3, 1)))[0]]
            for pid in env.slots.pids.tolist()[:1]:
                os.kill(pid, signal.SIGKILL)
            seen += [env.step(np.zeros((3, 1)))[0] for _ in range(2)]
            drawn.append(np.concatenate(seen))
        np.testing.assert_array_equal(*drawn)
        assert [len(np.unique(column)) for column in drawn[0].T] == [12, 12]
