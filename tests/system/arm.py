"""A task that is copied beside a topology as its user's own. Its steps sleep: a sampler whose learner is
behind would be sent home before it has sent anything.
"""

import time

import gymnasium
import numpy as np


class Arm(gymnasium.Env):
    """Random observations, the action as the reward, episodes of 50 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """The first observation."""
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        """4 ms of sleep."""
        self.steps += 1
        time.sleep(0.004)
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return observation, float(action), False, self.steps == 50, {}
