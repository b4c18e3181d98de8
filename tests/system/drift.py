"""A task that no single image tells how to solve."""

import gymnasium
import numpy as np

SIZE, BLOCK, SPEED = 36, 6, 3
#: Of 16 steps, the first of which does not show where the block goes.
BEST_RETURN = 15


class Drift(gymnasium.Env):
    """A block drifts left or right over the image and comes in again at the other side; to say which way it
    goes is worth 1, to be wrong costs 1. Half of the episodes terminate, half are truncated.

    Args:
        channels: 0 for images [36, 36], else for [36, 36, channels].
        steps: of an episode.
    """

    def __init__(self, channels=0, steps=16):
        self._limit = steps
        self._shape = (SIZE, SIZE, channels) if channels else (SIZE, SIZE)
        self.observation_space = gymnasium.spaces.Box(0, 255, self._shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Anywhere, in either direction."""
        super().reset(seed=seed)
        self._row, self._column = self.np_random.integers(SIZE - BLOCK), self.np_random.integers(SIZE)
        self._right, self._steps = int(self.np_random.integers(2)), 0
        return self._image(), {}

    def step(self, action):
        """Move by 3 pixels."""
        reward = 1.0 if action == self._right else -1.0
        self._column += SPEED if self._right else -SPEED
        self._steps += 1
        over, kind = self._steps == self._limit, self.np_random.random() < 0.5
        return self._image(), reward, bool(over and kind), bool(over and not kind), {}

    def _image(self):
        image = np.zeros(self._shape, np.uint8)
        columns = np.arange(self._column, self._column + BLOCK) % SIZE
        image[self._row : self._row + BLOCK, columns] = 255
        return image


gymnasium.register("Drift-v0", Drift)
