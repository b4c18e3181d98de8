"""An environment that gives what it was told: its number, and each action as it came."""

import gymnasium
import numpy as np


class Told(gymnasium.Env):
    """Its two actions count from 5.

    Args:
        number: an integer.
        name: a text that ends with the same number.
    """

    def __init__(self, number, name):
        self.number, self.name = number, name
        self.observation_space = gymnasium.spaces.Box(-9999, 9999, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        """No action yet."""
        super().reset(seed=seed)
        return self._told(0), {}

    def step(self, action):
        """For ever."""
        return self._told(action), 0.0, False, False, {}

    def _told(self, action):
        assert isinstance(self.number, int)
        return np.array([self.number, float(self.name.removeprefix("{index} env-")), action], np.float32)


gymnasium.register("Told-v0", Told)
