"""A pendulum that cuts its episodes itself, long before its time limit, and begins all of them alike."""

import gymnasium
from gymnasium.envs.classic_control import PendulumEnv


class CutShort(gymnasium.Wrapper):
    """Truncates after 50 steps."""

    def __init__(self):
        super().__init__(PendulumEnv())

    def reset(self, *, seed=None, options=None):
        """Always the same one."""
        self.length = 0
        return self.env.reset(seed=0)

    def step(self, action):
        """As the pendulum's, but for the end."""
        self.length += 1
        *came, _, info = self.env.step(action)
        return *came, self.length >= 50, info


gymnasium.register("CutShort-v0", CutShort, max_episode_steps=200)
