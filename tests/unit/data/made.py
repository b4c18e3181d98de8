"""Small datasets as Minari itself stores them."""

import gymnasium
import numpy as np

from spreeze_zmq import data
from spreeze_zmq.base.masks import mask_in
from spreeze_zmq.envs.recorded import Recorder


def dataset(name, env=None, episodes=2, steps=5, change=None, masked=False):
    """Write random episodes of an environment as a dataset, and return its folder.

    Args:
        name: Minari's.
        env: by default Pendulum.
        episodes: how many.
        steps: of each, which the environment's limit ends.
        change: called with the list of episodes before they are written.
        masked: whether action masks of its infos are kept.
    """
    found = []
    env = gymnasium.make("Pendulum-v1").unwrapped if env is None else env
    own = Recorder(gymnasium.wrappers.TimeLimit(env, steps), found.append, masked=masked)
    own.action_space.seed(1)
    for number in range(episodes):
        obs, info = own.reset(seed=number)
        over = False
        while not over:
            mask = info.get("action_mask", mask_in(obs))
            obs, _, terminated, truncated, info = own.step(own.action_space.sample(mask))
            over = terminated or truncated
    own.reset()
    if change is not None:
        change(found)
    return data.write(name, found, env, "made for a test")


class Parts(gymnasium.Env):
    """A Dict of a vector and a choice; actions count from 1."""

    observation_space = gymnasium.spaces.Dict(
        {
            "place": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float64),
            "kind": gymnasium.spaces.Discrete(3),
        }
    )
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        """At the origin."""
        super().reset(seed=seed)
        self._steps = 0
        return self._obs(), {}

    def step(self, action):
        """The observation counts the steps."""
        assert action in (1, 2)
        self._steps += 1
        return self._obs(), float(action), False, False, {}

    def _obs(self):
        return {"place": np.full(2, self._steps / 10), "kind": self._steps % 3}


class Eyes(gymnasium.Env):
    """A Dict of two images, whose pixels count the steps."""

    observation_space = gymnasium.spaces.Dict(
        {side: gymnasium.spaces.Box(0, 255, (2, 4, 1), np.uint8) for side in ("left", "right")}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """At step 0."""
        super().reset(seed=seed)
        self._steps = 0
        return self._obs(), {}

    def step(self, action):
        """One more."""
        self._steps += 1
        return self._obs(), 0.0, False, False, {}

    def _obs(self):
        return {
            side: np.full((2, 4, 1), self._steps + first, np.uint8)
            for side, first in (("left", 0), ("right", 200))
        }
