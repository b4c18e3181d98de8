"""Environments that are legal by Gymnasium's interface, and odd."""

import io
import logging.config
import os
import sys
import warnings

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from tests.unit.envs.mistaken_environments import Right

#: The least of int64, which has no absolute value.
LEAST = np.iinfo(np.int64).min
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


class Bare(gymnasium.Wrapper):
    """Sets what it wraps by itself."""

    def __init__(self):
        self.env = Right()


class OneInfo(Right):
    """All of them fill one and the same info, of which each step and reset says whose it is."""

    info: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, number):
        super().__init__()
        self.number = number

    def reset(self, *, seed=None, options=None):
        """Begin."""
        self.info["number"] = self.number
        return super().reset(seed=seed)[0], self.info

    def step(self, action):
        """Go on."""
        self.info["number"] = self.number
        return *super().step(action)[:4], self.info


class OnceUnplugged(Right):
    """Its very first step fails; others pay an array of one number."""

    unplugged = True

    def step(self, action):
        """Go on."""
        if OnceUnplugged.unplugged:
            OnceUnplugged.unplugged = False
            raise OSError("the arm is not plugged in")
        obs, _, *others = super().step(action)
        return obs, np.array([1.0]), *others


def odd(of):
    """One whose step pays, or whose spaces are, what no policy takes."""
    env = Right()
    if of == "huge":
        env.step = lambda action: (np.zeros(3, np.float32), 10**400, False, False, {})
    elif of == "no parts":
        env.observation_space = Dict({"a": Dict({})})
    elif of == "choices":
        env.action_space = Discrete(10**8)
    elif of == "numbers":
        env.observation_space = Dict({"at": Discrete(10**8)})
    elif of == "ragged":
        env.reset = lambda **_: ([[1.0], [2.0, 3.0]], {})
    elif of == "narrow":
        env.action_space = Box(np.array([1e8, 0.0]), np.array([1e8 + 4, 1.0]), dtype=np.float64)
    elif of == "least":
        env.observation_space = Box(LEAST, -(LEAST + 1), (3,), np.int64)
        env.reset = lambda **_: (np.full(3, LEAST), {})
    return env


class Strict(Right):
    """Has NumPy raise where a number overflows or rounds to 0, makes warnings errors, and prints and logs for
    itself alone. It pays 1 where that holds, and gives a number beyond all bounds in its second step.

    Args:
        at: when it says so, "made", "reset" or "step".
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, at):
        super().__init__()
        self.at = at
        if at == "made":
            self.set_up()

    def set_up(self):
        """As many modules do when they are imported."""
        np.seterr(all="raise")
        sys.stdout = io.StringIO()
        warnings.simplefilter("error")
        logging.config.dictConfig({"version": 1})
        logging.disable(logging.CRITICAL)

    def reset(self, *, seed=None, options=None):
        """Begin."""
        if self.at == "reset":
            self.set_up()
        return super().reset(seed=seed)

    def step(self, action):
        """Go on."""
        if self.at == "step":
            self.set_up()
        obs, _, *others = super().step(action)
        obs[0] = 1e30 if self.steps == 2 else 0.0
        strict = np.geterr()["under"] == "raise" and isinstance(sys.stdout, io.StringIO)
        return obs, float(strict), *others


class Forks(Right):
    """Has a process of its own work out each step, which ends as ``ends`` says; pays its exit code."""

    def __init__(self, ends):
        super().__init__()
        self.ends = ends

    def step(self, action):
        """Go on."""
        pid = os.fork()
        if pid == 0:
            if self.ends == "raises":
                raise OSError("no such device")
            sys.exit({"well": None, "with a code": 3, "in words": "no such device"}[self.ends])
        obs, _, *others = super().step(action)
        return obs, float(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), *others
