"""A task on small images that a few pixels tell how to solve."""

import gymnasium
import numpy as np

SIZE, REACH, SPEED = 42, 2, 2


class Catch(gymnasium.Env):
    """Ten balls of one pixel fall, one after another; to catch one with the paddle at the bottom, five pixels
    wide, is worth 1, to miss it costs 1. Actions: left, stay, right.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        """The paddle in the middle, a ball anywhere at the top."""
        super().reset(seed=seed)
        self._paddle, self._left = SIZE // 2, 10
        self._drop()
        return self._image(), {}

    def step(self, action):
        """The ball falls by a pixel."""
        moved = self._paddle + SPEED * (int(action) - 1)
        self._paddle = min(max(moved, REACH), SIZE - 1 - REACH)
        self._row += 1
        reward = 0.0
        if self._row == SIZE - 2:
            reward = 1.0 if abs(self._column - self._paddle) <= REACH else -1.0
            self._left -= 1
            self._drop()
        return self._image(), reward, self._left == 0, False, {}

    def _drop(self):
        self._row, self._column = 0, int(self.np_random.integers(SIZE))

    def _image(self):
        image = np.zeros((SIZE, SIZE, 1), np.uint8)
        image[self._row, self._column] = 255
        image[SIZE - 2 :, self._paddle - REACH : self._paddle + REACH + 1] = 255
        return image
