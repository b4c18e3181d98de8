"""Environments that return, raise or change what they should not, for the tests of the door."""

from __future__ import annotations

import asyncio
import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box

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
