"""A pole that is slow until a file is there: its first steps come at once, 6,000 of them in minutes."""

import sys
import time
from pathlib import Path

from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

#: How much longer each pause of an environment is than the one before: 6,000 steps of eight take 11 minutes.
LONGER_S = 0.0003


class Hold:
    """Sleeps in a sampler, each time a little longer, until there is a file by a pattern of its path."""

    def __init__(self, until):
        self.until, self.times = until, 0
        self.is_over = not until or "sampler" not in Path(sys.argv[0]).name

    def __call__(self):
        self.is_over = self.is_over or any(Path("/").glob(self.until.lstrip("/")))
        if not self.is_over:
            self.times += 1
            time.sleep(self.times * LONGER_S)


class Holding(CartPoleEnv):
    """Each step of a sampler sleeps until there is a file by the pattern ``until``."""

    def __init__(self, until, render_mode=None):
        super().__init__(render_mode)
        self.hold = Hold(until)

    def step(self, action):
        """Sleep, then step."""
        self.hold()
        return super().step(action)


def pole(until, render_mode=None):
    """The environment with the time limit of CartPole-v1."""
    return TimeLimit(Holding(until, render_mode), 500)
