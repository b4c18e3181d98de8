"""Environments that return, raise or change what they should not, for the tests of the door."""

from __future__ import annotations

import asyncio
import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from spreeze_zmq.envs.task import Task

#: What an environment may raise, by name.
RAISED = {
    "exit": lambda: sys.exit(),
    "exit 3": lambda: sys.exit(3),
    "cancelled": lambda: _raise(asyncio.CancelledError("window closed")),
    "generator": lambda: _raise(GeneratorExit()),
    "keyboard": lambda: _raise(KeyboardInterrupt("q was pressed")),
    "memory": lambda: _raise(MemoryError()),
    "recursion": lambda: _recurse(),
    "stop": lambda: _raise(StopIteration(3)),
    "own": lambda: _raise(Closed("the port")),
    "dumb": lambda: _raise(Dumb()),
    "surrogate": lambda: _raise(OSError("no file \udc80")),
}


class Closed(BaseException):
    """An exception of the environment's own, which is no Exception."""


class Dumb(Exception):
    """Its message cannot be read."""

    def __str__(self):
        raise RuntimeError("no words")


def _raise(error):
    raise error


def _recurse():
    return _recurse()


class Line(gymnasium.Env):
    """A step that returns or raises what it is told at its third step; episodes of five steps.

    Args:
        at: the call that goes wrong: ``step``, ``reset``, ``close`` or ``render``.
        raises: a key of ``RAISED``.
        returns: called with what the call would return; its result is returned.
        info: the info of each step.
        space: of observations; a vector of three numbers by default.
        acts: the space of actions.
    """

    def __init__(self, at="step", raises="", returns=None, info=None, space=None, acts=None):
        self.observation_space = space or Box(-10, 10, (3,), np.float32)
        self.action_space = acts or Box(-1, 1, (1,), np.float32)
        self.at, self.raises, self.returns, self.info = at, raises, returns, info
        self.steps = self.resets = 0

    def _out(self, call, value):
        if call != self.at or (call == "step" and self.steps != 3):
            return value
        if call == "reset" and self.resets % 2:  # every other one succeeds
            return value
        if self.raises:
            RAISED[self.raises]()
        return value if self.returns is None else self.returns(value)

    def _obs(self):
        return np.array([self.steps, self.resets, 0.5], np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        self.resets, self.steps = self.resets + 1, 0
        obs = self._obs() if self.observation_space.shape == (3,) else self.observation_space.sample()
        return self._out("reset", (obs, {}))

    def step(self, action):
        """Go on."""
        self.steps += 1
        obs = self._obs() if self.observation_space.shape == (3,) else self.observation_space.sample()
        return self._out("step", (obs, 1.0, False, self.steps >= 5, self.info or {}))

    def render(self):
        """Draw."""
        return self._out("render", np.zeros((4, 4, 3), np.uint8))

    def close(self):
        """End."""
        self._out("close", None)


class Flips(Line):
    """Its simulator has the other sign, and changes the array that it was given."""

    def step(self, action):
        """Reward the changed action."""
        action *= -1.0
        obs, _, *others = super().step(action)
        return obs, float(action[0]), *others


RETURNED = [
    lambda s: None,
    lambda s: s[:4],
    lambda s: (s[0][:1], *s[1:]),
    lambda s: (None, *s[1:]),
    lambda s: (np.array([1, None, 3], object), *s[1:]),
    lambda s: (np.ma.masked_all(3), *s[1:]),
    lambda s: (s[0], "\udc80" * 10**5, *s[2:]),
    lambda s: (s[0], None, *s[2:]),
    lambda s: (*s[:2], "no", *s[3:]),
    lambda s: (*s[:3], [True, False], s[4]),
    lambda s: _raise(OSError("\x00\udc80" * 10**5)),
]
TABLE = [*RETURNED, *(lambda s, raised=raised: raised() for raised in RAISED.values())]


class Table(Line):
    """Each one that a process makes goes wrong in its third step, in the next way of ``TABLE``."""

    made = 0

    def __init__(self):
        super().__init__()
        self.wrong = TABLE[Table.made % len(TABLE)]
        Table.made += 1

    def step(self, action):
        """As the table says; its infos are as bad."""
        *step, _ = super().step(action)
        info = {1: 2, "\udc80" * 999: 1.0, "many": [self], **dict.fromkeys(map(str, range(999)), 1.0)}
        return self.wrong((*step[:4], info)) if self.steps == 3 else (*step[:4], info)


class Lines(Task):
    """A native task whose step goes wrong as it is told, once.

    Args:
        wrong: the method that goes wrong: ``advance``, ``begin``, ``observe``, ``reward``, ``terminated`` or
            ``close``.
        raises: a key of ``RAISED``; without one the method returns a single number.
    """

    max_episode_steps = 5

    def __init__(self, wrong="", raises=""):
        self.wrong, self.raises = wrong, raises

    def _goes_wrong(self, method, value=None):
        if self.wrong != method or self.steps.max() < 2:
            return value
        self.wrong = ""
        if self.raises:
            RAISED[self.raises]()
        return np.ones(1, np.float32)

    def allocate(self, num_envs):
        """Make room."""
        self.observation_space, self.action_space = (
            Box(-10, 10, (2,), np.float32),
            Box(-1, 1, (1,), np.float32),
        )
        self.steps = np.zeros(num_envs, np.int64)

    def begin(self, rows, rngs, options):
        """Begin."""
        self._goes_wrong("begin")
        self.steps[rows] = 0

    def advance(self, action):
        """Go on, and write to the actions."""
        self.steps += 1
        self._goes_wrong("advance")
        action *= 0

    def outcome(self, action):
        """A reward of 1."""
        one = np.ones(len(self.steps))
        info = {"steps": self.steps, "odd": 3, "short": np.zeros(1)}
        return self._goes_wrong("reward", one), self._goes_wrong("terminated", one < 0), info

    def observe(self, rows):
        """The number of steps."""
        return self._goes_wrong("observe", np.stack([self.steps[rows]] * 2, 1).astype(np.float32))

    def close(self):
        """End."""
        self._goes_wrong("close")
