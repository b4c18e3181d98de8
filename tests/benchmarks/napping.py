"""A pendulum whose steps wait, as for a slow device, so that more samplers help even on few cores."""

import time

from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TimeLimit


class Napping(PendulumEnv):
    """Pendulum whose steps sleep for ``nap_s``, which takes no core."""

    def __init__(self, nap_s=0.001):
        super().__init__()
        self.nap_s = nap_s

    def step(self, action):
        """Sleep, then step."""
        time.sleep(self.nap_s)
        return super().step(action)


def make(nap_s=0.001):
    """The environment with the time limit of Pendulum-v1."""
    return TimeLimit(Napping(nap_s), 200)
