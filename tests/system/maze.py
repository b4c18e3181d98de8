"""A maze whose reward is 0 at the goal and -1 anywhere else, as Gymnasium-Robotics' sparse tasks have it."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

SIZE, STEPS, PACE, RADIUS = 3, 50, 0.15, 0.2


class Maze(gymnasium.Env):
    """A point in a cube that a wall divides but for its upper half; the goal is beyond the wall."""

    def __init__(self):
        cube = Box(-1.0, 1.0, (SIZE,), np.float64)
        self.observation_space = Dict({"observation": cube, "achieved_goal": cube, "desired_goal": cube})
        self.action_space = Box(-1.0, 1.0, (SIZE,), np.float32)

    def reset(self, *, seed=None, options=None):
        """The point is to the left of the wall."""
        super().reset(seed=seed)
        self._place, self._goal = self.np_random.uniform(-1.0, 1.0, (2, SIZE))
        self._place[0] = self.np_random.uniform(-1.0, -0.2)
        self._goal[0] = self.np_random.uniform(0.4, 1.0)
        self._step = 0
        return self._observation(), {}

    def step(self, action):
        """A move through the wall stops in front of it."""
        there = np.clip(self._place + PACE * np.clip(action, -1.0, 1.0), -1.0, 1.0)
        if there[0] * self._place[0] <= 0.0 and min(there[1], self._place[1]) < 0.0:
            there[0] = self._place[0]
        self._place, self._step = there, self._step + 1
        reward = float(self.compute_reward(self._place, self._goal, {}))
        info = {"is_success": reward == 0.0}
        return self._observation(), reward, False, self._step == STEPS, info

    def compute_reward(self, achieved_goal, desired_goal, info):
        """0 within ``RADIUS`` of the goal, else -1; of one or of many."""
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > RADIUS).astype(np.float64)

    def _observation(self):
        return {"observation": self._place, "achieved_goal": self._place, "desired_goal": self._goal}
