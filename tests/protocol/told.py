"""Environments of tests: one gives what it was told, its number and each action as it came, one fails, one
is bounded in part.
"""

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
        return np.array([self.number, float(self.name.removeprefix("{index:03d} env-")), action], np.float32)


class Faulty(gymnasium.Env):
    """Its fifth step raises, or gives what is not finite.

    Args:
        fault: ``"raises"`` or ``"nan"``.
    """

    observation_space = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, fault):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        """Zeros."""
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        """Zeros, up to the fifth."""
        self.steps += 1
        if self.steps == 5 and self.fault == "raises":
            raise KeyError("contact lost")
        return np.full(3, np.nan if self.steps == 5 else 0, np.float32), 1.0, False, False, {}


class Half(gymnasium.Env):
    """Its action has an upper bound of 1 alone, and comes back as the reward."""

    observation_space = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-np.inf, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Zeros."""
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        """For ever."""
        return np.zeros(3, np.float32), float(action[0]), False, False, {}


gymnasium.register("Faulty-v0", Faulty)
gymnasium.register("Half-v0", Half)
gymnasium.register("Told-v0", Told)
