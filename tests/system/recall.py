"""Tasks that only a policy with a memory solves."""

import gymnasium
import numpy as np

#: Twelve steps, as rollouts and sequences have them, are no whole episodes.
STEPS = 5


class Recall(gymnasium.Env):
    """The first observation of an episode shows which of two actions is worth 1 in its last step; the other
    one costs 1. Nothing that is seen later tells them apart.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Either action, at random."""
        super().reset(seed=seed)
        self._right, self._step = int(self.np_random.integers(2)), 0
        return self._observation(), {}

    def step(self, action):
        """Nothing counts before the last one."""
        self._step += 1
        over = self._step == STEPS
        reward = (1.0 if action == self._right else -1.0) if over else 0.0
        return self._observation(), reward, over, False, {}

    def _observation(self):
        shown = 2 * self._right - 1 if self._step == 0 else 0
        return np.array([shown, self._step / STEPS], np.float32)


class RecallSign(Recall):
    """The same of the sign of a number."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action):
        """Above zero is the second action."""
        return super().step(int(action[0] > 0.0))


gymnasium.register("Recall-v0", Recall)
gymnasium.register("RecallSign-v0", RecallSign)
