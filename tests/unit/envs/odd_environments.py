"""Environments that are legal by Gymnasium's interface, and odd."""

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from tests.unit.envs.mistaken_environments import Right

#: Spaces of observations and actions that depend on a number, by what differs.
VARIED = {
    "bounds": lambda number: (None, Box(-1.0 - number, 1.0 + number, (1,))),
    "choices": lambda number: (None, Discrete(2 + number)),
    "shape": lambda number: (Box(-1, 1, (3 + number,)), None),
    "start": lambda number: (Dict(a=Discrete(3, start=number)), None),
    "pixels": lambda number: (Box(0, 3 + number, (8,), np.uint8), None),
    "limits": lambda number: (Box(-1 - number, 1 + number, (3,), np.float32), None),
}


class Varied(Right):
    """Has spaces that depend on its number, or on how often it was reset.

    Args:
        of: a key of ``VARIED``.
        number: of the environment.
        grows: whether each reset gives it those of the next number.
    """

    def __init__(self, of, number=0, grows=False):
        super().__init__()
        self.of, self.number, self.grows = of, number, grows
        self._set()

    def _set(self):
        observation, action = VARIED[self.of](self.number)
        self.observation_space = observation or Right.observation_space
        self.action_space = action or Right.action_space

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        self.number += self.grows
        self._set()
        return self.observation_space.sample(), {}

    def step(self, action):
        """Any observation of its space."""
        return self.observation_space.sample(), *super().step(action)[1:]
