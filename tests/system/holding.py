"""A pole that is slow until a file is there: a quick run does not end before what its test waits for."""

import sys
import time
from pathlib import Path

from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit


def held(until, nap_s=0.01):
    """Sleep, in a sampler, unless there is a file by a pattern of its path; returns whether that is over."""
    if "sampler" not in Path(sys.argv[0]).name or any(Path("/").glob(until.lstrip("/"))):
        return True
    time.sleep(nap_s)
    return False


class Holding(CartPoleEnv):
    """Each step of a sampler sleeps until there is a file by the pattern ``until``."""

    def __init__(self, until, render_mode=None):
        super().__init__(render_mode)
        self.until, self.is_free = until, False

    def step(self, action):
        """Sleep, then step."""
        self.is_free = self.is_free or held(self.until)
        return super().step(action)


def pole(until, render_mode=None):
    """The environment with the time limit of CartPole-v1."""
    return TimeLimit(Holding(until, render_mode), 500)
