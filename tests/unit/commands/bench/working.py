"""An environment that computes, in a file that workers import at once."""

import time

from gymnasium.envs.classic_control import CartPoleEnv


class Working(CartPoleEnv):
    """Each step computes for 2 ms."""

    def step(self, action):
        until_s = time.thread_time() + 0.002
        while time.thread_time() < until_s:
            pass
        return super().step(action)
