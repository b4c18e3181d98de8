"""Environments as people write them at first, each with one mistake."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Right(gymnasium.Env):
    """The one without a mistake, which the others inherit."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        """Fifty steps without a reward."""
        self.steps += 1
        return np.zeros(3, np.float32), 0.0, False, self.steps >= 50, {}


class OldStep(Right):
    """Written for Gym before 0.26."""

    def step(self, action):
        """Four values."""
        return np.zeros(3, np.float32), 0.0, False, {}


class OldReset(Right):
    """Written for Gym before 0.26."""

    def reset(self):
        """Takes no seed."""
        return np.zeros(3, np.float32)


class NoInfo(Right):
    """Written for Gym before 0.26."""

    def reset(self, *, seed=None, options=None):
        """The observation alone."""
        return np.zeros(3, np.float32)


class FailsInInit(Right):
    """It cannot be made."""

    def __init__(self):
        self.model = {}["arm.xml"]


class FailsInStep(Right):
    """It fails from the first step on."""

    def step(self, action):
        """A division by the number of steps."""
        return np.zeros(3, np.float32), 1.0 / self.steps, False, False, {}


class FailsLater(Right):
    """It fails in its 40th step, after a trial of one."""

    def step(self, action):
        """As ``Right``, for a while."""
        if self.steps == 39:
            raise OSError("the arm is not plugged in")
        return super().step(action)


class NoSpaces(gymnasium.Env):
    """It does not say what it observes."""

    reset, step = Right.reset, Right.step


class NoStep(gymnasium.Env):
    """A method is missing."""

    observation_space, action_space = Right.observation_space, Right.action_space

    def reset(self, *, seed=None, options=None):
        """Begin."""
        return np.zeros(3, np.float32), {}


class OtherShape(Right):
    """Observes other numbers than its space says."""

    def reset(self, *, seed=None, options=None):
        """Four instead of three."""
        return np.zeros(4, np.float32), {}


class NotANumber(Right):
    """Observes nothing finite."""

    def step(self, action):
        """A division by 0 in NumPy."""
        return np.full(3, np.nan, np.float32), 0.0, False, False, {}


class NoReward(Right):
    """A branch without a value."""

    def step(self, action):
        """None instead of a number."""
        return np.zeros(3, np.float32), None, False, False, {}


class Unscaled(Right):
    """Observations in units of their own."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def reset(self, *, seed=None, options=None):
        """Large, small, and 0."""
        super().reset(seed=seed)
        return np.array([1e12, 1e-9, 0.0]), {}

    def step(self, action):
        """As at the start."""
        return np.array([1e12, 1e-9, 0.0]), *super().step(action)[1:]


class Pixels(Right):
    """Images, and a continuous action."""

    observation_space = Box(0, 255, (36, 36, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        """A dark one."""
        super().reset(seed=seed)
        return np.zeros((36, 36, 3), np.uint8), {}

    def step(self, action):
        """Dark, too."""
        return np.zeros((36, 36, 3), np.uint8), *super().step(action)[1:]


class Mended(gymnasium.Wrapper):
    """Makes an environment of the old interface one of the new, as wrappers may."""

    def __init__(self):
        super().__init__(OldStep())

    def step(self, action):
        """Five values of four."""
        obs, reward, done, info = self.env.step(action)
        return obs, reward, done, False, info


class NoMetadata(Right):
    """Says nothing about itself."""

    metadata = None


class NoOptions(Right):
    """Its reset() takes a seed alone."""

    def reset(self, seed=None):
        """Begin."""
        return super().reset(seed=seed)


class Weighted(gymnasium.RewardWrapper):
    """A sum of several rewards whose weights were forgotten."""

    def __init__(self):
        super().__init__(SeveralRewards())

    def reward(self, reward):
        """A line that raises."""
        return float(reward @ self.weights)


class SeveralRewards(Right):
    """A reward for each of two aims."""

    def step(self, action):
        """Two numbers as the reward."""
        obs, _, *ends = super().step(action)
        return obs, np.array([1.0, 2.0]), *ends


class NoEnv:
    """Not an environment at all."""
