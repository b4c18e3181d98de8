"""A joint beside a camera that counts the steps, so that each observation shows whether it is whole."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

STEPS, SIDE, JOINTS = 20, 8, 5


class Camera(gymnasium.Env):
    """The image is as bright as the number of steps, and the joints hold a fraction of it."""

    observation_space = Dict(
        {
            "joints": Box(-np.inf, np.inf, (JOINTS,), np.float64),
            "lens": Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "tool": Box(0.0, 1.0, (1,), np.float32),
        }
    )
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """The joints begin anywhere."""
        super().reset(seed=seed)
        self._begun, self._step = self.np_random.uniform(-1.0, 1.0, JOINTS), 0
        return self._seen(), {}

    def step(self, action):
        """A reward for small actions."""
        self._step += 1
        return self._seen(), -float(action[0] ** 2), False, self._step == STEPS, {}

    def _seen(self):
        lens = np.full((SIDE, SIDE, 3), 200 + self._step, np.uint8)
        return {"joints": self._begun, "lens": lens, "tool": np.float32([self._step / STEPS])}
