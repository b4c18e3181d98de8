"""Environments that draw from the generators which all code of a process shares."""

import importlib
import os
import random
import signal

import numpy as np
from gymnasium.spaces import Box

from spreeze_zmq.envs.seeds import seed_after_failure
from tests.unit.envs.own_environments import Count


class Drawing(Count):
    """Observes a number each that NumPy and Python draw, and torch where it ``has_torch``."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self, has_torch=False, **kwargs):
        super().__init__(**kwargs)
        self.torch = importlib.import_module("torch") if has_torch else None

    def draw(self):
        """One number of each."""
        third = float(self.torch.rand(())) if self.torch else random.random()
        return np.array([np.random.rand(), random.random(), third])

    def reset(self, **options):
        """Draw."""
        super().reset(**options)
        return self.draw(), {}

    def step(self, action):
        """Draw."""
        return self.draw(), *super().step(action)[1:]


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


def test_torch_draws_by_the_seed_of_each_worker_too(make):
    """Which an environment may be the first to import."""
    torch, zeros = importlib.import_module("torch"), np.zeros((2, 1))
    env = make(f"{__name__}:Drawing", 2, num_workers=2, seed=7, has_torch=True, length=99)
    drawn = np.stack([env.reset()[0], env.step(zeros)[0]])[..., 2]
    for worker in range(2):
        generator = torch.Generator().manual_seed(seed_after_failure(7, worker, 0, 0))
        series = torch.rand(99, generator=generator).tolist()
        begins = series.index(drawn[0, worker])
        assert series[begins : begins + 2] == drawn[:, worker].tolist()
