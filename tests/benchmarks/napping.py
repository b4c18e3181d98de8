"""An environment that waits: a pendulum behind a slow line, so that more samplers help on few cores."""

import time

from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TimeLimit


class Napping(PendulumEnv):
    """Pendulum-v1 whose every step takes ``nap_s`` longer and no core."""

    def __init__(self, nap_s=0.001):
        super().__init__()
        self.nap_s = nap_s

    def step(self, action):
        """Sleep, then step."""
        time.sleep(self.nap_s)
        return super().step(action)


def make(nap_s=0.001):
    """With the time limit of Pendulum-v1."""
    return TimeLimit(Napping(nap_s), 200)
