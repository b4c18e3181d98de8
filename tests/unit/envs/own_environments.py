"""Environments of a user's own, for the tests: good ones, and ones that fail in every way."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Tuple

from spreeze_zmq.envs.mujoco import MujocoTask
from tests.unit.envs.mistaken_environments import Right

NOT_CALLABLE = 3


class Count(gymnasium.Env):
    """Observes ``[env's number of steps, action]``; ends after ``length`` steps."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 3, truncate: bool = False, fails_at: int = -1, gives: str = ""):
        self.length, self.truncate, self.fails_at, self.gives = length, truncate, fails_at, gives
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        """Draw the second number from the environment's own generator."""
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.0, self.np_random.uniform()]), {"started": True}

    def step(self, action):
        """Count, and fail at the step ``fails_at``."""
        self.steps += 1
        obs, reward = np.array([float(self.steps), action[0]]), 1.0
        if self.steps == self.fails_at:
            if self.gives == "":
                raise ZeroDivisionError("the floor is gone")
            obs, reward = (obs * np.nan, reward) if self.gives == "obs" else (obs, np.inf)
        ended = self.steps >= self.length
        return obs, reward, ended and not self.truncate, ended and self.truncate, {"steps": self.steps}


class Costs(Count):
    """Each step costs its number."""

    def step(self, action):
        """Count."""
        obs, _, terminated, truncated, info = super().step(action)
        return obs, -float(self.steps), terminated, truncated, info


class Draw(Count):
    """Ends after as many steps as its seed says, up to twenty."""

    def reset(self, *, seed=None, options=None):
        """Draw the length."""
        begun = super().reset(seed=seed)
        self.length = int(self.np_random.integers(2, 21))
        return begun


class Strays(Count):
    """Its count leaves its space after thirty steps."""

    observation_space = Box(np.array([0.0, -1.0]), np.array([30.0, np.inf]), dtype=np.float64)


class Again(PendulumEnv):
    """A pendulum that begins each episode with a seed of its own; with ``chance`` it is pushed at random."""

    def __init__(self, chance: bool = False):
        super().__init__()
        self.chance = chance

    def reset(self, *, seed=None, options=None):
        """As with seed 3, whatever ``seed`` is."""
        begun = super().reset(seed=3, options=options)
        self.pushes = np.random.default_rng(seed)
        return begun

    def step(self, action):
        """As the pendulum does; the push is drawn from the seed that was given."""
        return super().step(action + self.chance * self.pushes.normal(size=1))


class Moody(Count):
    """Goes wrong when its action asks for it: raises above 0.85, gives NaN above 0.75, hangs above 0.65,
    kills its process above 0.55; otherwise takes as many tenths of a second as it is below zero.
    """

    action_space = Box(-10.0, 1.0, (1,), np.float32)

    def step(self, action):
        """As the action says."""
        mood = float(action[0])
        if mood > 0.85:
            raise ZeroDivisionError("in a bad mood")
        if 0.65 < mood <= 0.75:
            time.sleep(60)
        if 0.55 < mood <= 0.65:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(max(0.0, -mood / 10))
        obs, *others = super().step(action)
        return (obs * np.nan if 0.75 < mood <= 0.85 else obs), *others


def count(**kwargs):
    """A callable that returns an environment."""
    return Count(**kwargs)


def nothing():
    """A callable that returns none."""
    return 3


def unbounded():
    """Its actions have no bounds."""
    env = Count()
    env.action_space = Box(-np.inf, np.inf, (1,), np.float32)
    return env


def bounded_in_part():
    """Its first action has a lower bound alone."""
    env = Count()
    env.action_space = Box(np.float32([0.0, -1.0]), np.float32([np.inf, 1.0]))
    return env


def matrix_actions():
    """Its actions are a matrix."""
    env = Count()
    env.action_space = Box(-1.0, 1.0, (2, 2), np.float32)
    return env


def several_actions():
    """Two discrete actions at once."""
    env = Count()
    env.action_space = MultiDiscrete([3, 4])
    return env


class Recall(Count):
    """Gives the action that came back to it as its reward."""

    def step(self, action):
        """Check the action as Gymnasium's own environments do."""
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        obs, _, terminated, truncated, info = super().step(np.atleast_1d(action))
        return obs, float(np.sum(action)), terminated, truncated, info


def shifted(several: bool = False):
    """Its discrete actions count from another number than 0."""
    env = Recall(length=99)
    env.action_space = MultiDiscrete([2, 3], start=[5, -1]) if several else Discrete(3, start=1)
    return env


def buttons():
    """Any of three may be pressed at once."""
    env = Recall(length=99)
    env.action_space = MultiBinary(3)
    return env


def rows():
    """Its actions are a row for each robot."""
    env = Count()
    env.action_space = Box(-1.0, 1.0, (1, 4))
    return env


def one_is_fixed():
    """The second number of its actions is always 0."""
    env = Count()
    env.action_space = Box(np.float32([-1, 0]), np.float32([1, 0]))
    return env


class Parts(Count):
    """Observes a Dict of its number of steps, a number of four, and a Tuple of an image and a flag."""

    observation_space = Dict(
        {
            "steps": Box(-np.inf, np.inf, (1,), np.float32),
            "which": Discrete(4, start=1),
            "pair": Tuple((Box(0, 255, (2, 2), np.uint8), MultiBinary(1))),
        }
    )

    def parts(self, obs):
        """The Dict of an observation of ``Count``."""
        which = 1 + self.steps % 4
        image = np.full((2, 2), self.steps, np.uint8)
        return {"steps": obs[:1].astype(np.float32), "which": which, "pair": (image, np.ones(1, np.int8))}

    def reset(self, **kwargs):
        """As ``Count``."""
        obs, info = super().reset(**kwargs)
        return self.parts(obs), info

    def step(self, action):
        """As ``Count``."""
        obs, *others = super().step(action)
        return self.parts(obs), *others


def camera():
    """Observes an image."""
    env = Count()
    env.observation_space = Box(0, 255, (4, 4, 3), np.uint8)
    return env


def sequence():
    """Its observations have no fixed size."""
    env = Count()
    env.observation_space = Sequence(Discrete(3))
    return env


def dictionary_actions():
    """Its actions are a Dict."""
    env = Count()
    env.action_space = Dict({"a": Discrete(2)})
    return env


def lying():
    """Its observations are not of the shape that its space says."""
    env = Count()
    env.observation_space = Box(-1.0, 1.0, (5,), np.float64)
    return env


@dataclass(eq=False)
class Balance(MujocoTask):
    """A native task of one's own over one of Gymnasium's models."""

    max_episode_steps = 4
    derived = ("site_xpos",)

    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 2
    noise: float = 0.1

    site_xpos: np.ndarray = field(init=False)

    def initial_state(self, rng):
        """Noise on positions."""
        return self.init_qpos + rng.uniform(-self.noise, self.noise, self.model.nq), self.init_qvel

    def observe(self, rows):
        """Positions and velocities."""
        return np.concatenate((self.qpos[rows], self.qvel[rows]), axis=1)

    def outcome(self, action):
        """How high the tip is."""
        height = self.site_xpos[:, 0, 2]
        return height, height < 0.5, {"height": height}


class Misspelt(Balance):
    """Its model is no MJCF."""

    mjcf = "<mujoco><worldbodi/></mujoco>"


def short(length=99):
    """Has a time limit of its own inside another wrapper."""
    return gymnasium.Wrapper(gymnasium.wrappers.TimeLimit(Count(length), 4))


gymnasium.register("OwnCount-v0", entry_point=Count, max_episode_steps=2)
gymnasium.register("OwnShort-v0", entry_point=short)
gymnasium.register("BatchAlone-v0", vector_entry_point=gymnasium.vector.SyncVectorEnv)


class Simulator(Right):
    """Each of its episodes has a return of its own."""

    ports: list[object] = []  # noqa: RUF012

    def __init__(self, port=5000):
        super().__init__()
        self.ports.append(port)

    def step(self, action):
        """The reward is drawn from the seed of the episode."""
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.np_random.uniform(), terminated, truncated, info
