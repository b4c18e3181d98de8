"""Pendulum-v1 seen only by small drawn images."""

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv

SIZE = 36
ROWS, COLUMNS = np.mgrid[0:SIZE, 0:SIZE] - (SIZE - 1) / 2


class Swing(gymnasium.ObservationWrapper):
    """The rod as a bright line with a square at its end; one image does not show the velocity.

    Args:
        repeat: steps of the pendulum for each action, whose rewards are summed.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)

    def __init__(self, repeat=1):
        super().__init__(gymnasium.wrappers.TimeLimit(PendulumEnv(), 200))
        self._repeat = repeat

    def step(self, action):
        """As often as an action is repeated."""
        total = 0.0
        for _ in range(self._repeat):
            *step, info = self.env.step(action)
            total += float(step[1])
            if step[3]:
                break
        return self.observation(step[0]), total, step[2], step[3], info

    def observation(self, observation):
        """The image of an angle's cosine and sine, up being 0."""
        up, left = observation[:2]
        along, beside = -ROWS * up - COLUMNS * left, ROWS * left - COLUMNS * up
        rod = (along >= 0) & (along <= 13) & (np.abs(beside) <= 1.2)
        weight = np.maximum(np.abs(along - 13), np.abs(beside)) <= 3
        return (255 * weight + 128 * (rod & ~weight)).astype(np.uint8)[..., None]
