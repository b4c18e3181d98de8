"""A task whose only reward is behind a wall, which random actions do not get around; and a known way."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box

PACE, RADIUS, STEPS = 0.2, 0.25, 50
START, GOAL = np.array([-0.8, -0.8]), np.array([0.8, -0.8])
#: The wall is at 0, but for places above this.
GAP = 0.5
#: From each place, where the known way leads next.
WAY = (np.array([-0.6, 0.8]), np.array([0.6, 0.8]), GOAL)


class Detour(gymnasium.Env):
    """A point in a square; 1 at the goal, which ends the episode, and 0 anywhere else."""

    observation_space = Box(-1.0, 1.0, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        """The point is near the start."""
        super().reset(seed=seed)
        self._place, self._step = START + self.np_random.uniform(-0.2, 0.2, 2), 0
        return self._place.copy(), {}

    def step(self, action):
        """A move through the wall stops in front of it."""
        there = np.clip(self._place + PACE * np.clip(action, -1.0, 1.0), -1.0, 1.0)
        if there[0] * self._place[0] <= 0.0 and min(there[1], self._place[1]) < GAP:
            there[0] = self._place[0]
        self._place, self._step = there, self._step + 1
        reached = bool(np.linalg.norm(there - GOAL) < RADIUS)
        return there.copy(), float(reached), reached, self._step == STEPS, {"is_success": reached}


def known_way(obs, rng):
    """The action of one who knows the way, not quite exactly."""
    x, y = obs
    aim = WAY[2] if x > 0.4 else WAY[1] if y > 0.6 else WAY[0]
    return np.clip((aim - obs) / PACE + rng.normal(0.0, 0.2, 2), -1.0, 1.0).astype(np.float32)


def demonstrations(keep, episodes, seed=0):
    """Play some episodes in which the goal is reached; ``keep`` is called with each."""
    from spreeze_zmq.envs.recorded import Recorder

    env, rng = Recorder(Detour(), keep), np.random.default_rng(seed)
    for number in range(episodes):
        obs, _ = env.reset(seed=seed + number)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(known_way(obs, rng))
            over = terminated or truncated
        assert reward == 1.0
    env.reset()
