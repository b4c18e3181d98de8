"""Pendulum-v1 made sick on purpose, each in one way that people do by mistake."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict


class Healthy(gymnasium.Wrapper):
    """The task itself; a wrapper has no native engine, so all of these are stepped alike."""

    limit = 200

    def __init__(self):
        env = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
        super().__init__(gymnasium.wrappers.TimeLimit(env, self.limit) if self.limit else env)


class LargeRewards(Healthy):
    """Rewards of 1e5."""

    def step(self, action):
        """As the class says."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, 1e5 * reward, terminated, truncated, info


class ConstantReward(Healthy):
    """The reward was never written."""

    def step(self, action):
        """As the class says."""
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, 1.0, terminated, truncated, info


class TinyObservations(gymnasium.wrappers.TransformObservation):
    """In units of 10 km."""

    def __init__(self):
        env = Healthy()
        space = Box(-1e-3, 1e-3, env.observation_space.shape, np.float32)
        super().__init__(env, lambda obs: (1e-4 * obs).astype(np.float32), space)


class Masked(Healthy):
    """Says in info which actions are allowed, as many discrete tasks do."""

    def reset(self, **named):
        """As the class says."""
        obs, info = self.env.reset(**named)
        return obs, {**info, "action_mask": np.ones(1, np.int8)}

    def step(self, action):
        """As the class says."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "action_mask": np.ones(1, np.int8)}


class LimitTerminates(Healthy):
    """The time limit of 200 steps is reported as terminated."""

    def step(self, action):
        """As the class says."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


class NeverEnding(Healthy):
    """Without a time limit."""

    limit = None


class IgnoresSeed(Healthy):
    """Draws its start from a generator of its own."""

    def reset(self, *, seed=None, options=None):
        """As the class says."""
        return self.env.reset(seed=int(np.random.default_rng().integers(2**31)), options=options)


class KeepsSeed(Healthy):
    """Begins every episode by the last seed that it was given."""

    seed = None

    def reset(self, *, seed=None, options=None):
        """As the class says."""
        self.seed = self.seed if seed is None else seed
        return self.env.reset(seed=self.seed, options=options)


class Goal(gymnasium.ObservationWrapper):
    """As Gymnasium-Robotics has it; the reward is given at the goal only, and nobody gets there."""

    def __init__(self):
        super().__init__(Healthy())
        small = Box(-1.0, 1.0, (2,), np.float32)
        parts = {"observation": self.env.observation_space, "achieved_goal": small, "desired_goal": small}
        self.observation_space = Dict(parts)

    def observation(self, obs):
        """As the class says."""
        return {"observation": obs, "achieved_goal": obs[:2], "desired_goal": np.array([1, 0], np.float32)}


class Camera(gymnasium.ObservationWrapper):
    """An image and a vector, side by side in a Dict."""

    def __init__(self):
        super().__init__(Healthy())
        self.observation_space = Dict(
            {"camera": Box(0, 255, (16, 16, 3), np.uint8), "state": self.env.observation_space}
        )

    def observation(self, obs):
        """As the class says."""
        return {"camera": np.zeros((16, 16, 3), np.uint8), "state": obs}


class Outside(gymnasium.ObservationWrapper):
    """Degrees per second, where the space has radians."""

    def __init__(self):
        super().__init__(Healthy())

    def observation(self, obs):
        """As the class says."""
        return np.array([*obs[:2], 57.3 * obs[2] + 10.0], np.float32)


class Timestamps(gymnasium.ObservationWrapper):
    """Seconds since 1970 in float64; what tells states apart is in the last digits."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self):
        super().__init__(Healthy())

    def observation(self, obs):
        """As the class says."""
        return obs + np.array([0.0, 1.7e9, 0.0])


class Codes(gymnasium.ObservationWrapper):
    """Numbers of kinds of things, 0 to 10, in bytes."""

    observation_space = Box(0, 255, (3,), np.uint8)

    def __init__(self):
        super().__init__(Healthy())

    def observation(self, obs):
        """As the class says."""
        return np.clip(np.rint(5 + 5 * obs), 0, 10).astype(np.uint8)


def own_statistics():
    """Rewards are normalised in each environment for itself."""
    return gymnasium.wrappers.NormalizeReward(Healthy())
