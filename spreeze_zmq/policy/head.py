"""What turns a network's output into actions, and the bounds of a box of actions."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
#: ``[N, *action_shape]`` float32 in the environment's own units, or int64.
Actions = NDArray[Any]
#: Actions and, where asked for, their log densities ``[N]``.
Drawn = tuple[Actions, Floats | None]


class Actor(Protocol):
    """Draws actions, given what they depend on: for a head the output of the network ``[N, num_outputs]``."""

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn | None:
        """``num`` actions of version 0, each as likely as any other, and their log densities; None where
        there is no such distribution.
        """

    def draw(
        self, output: NDArray[Any], rng: np.random.Generator, place: Floats | None, log_prob: bool
    ) -> Drawn:
        """An action for each row.

        Args:
            output: ``[N, ...]``.
            rng: where the noise comes from.
            place: ``[N]`` in [0, 1], where each environment stands among all; None for evenly spread.
            log_prob: whether the log densities are wanted.

        Raises:
            ValueError: they are wanted, and there are none.
        """

    def mode(self, output: NDArray[Any]) -> Actions:
        """The deterministic action for each row."""

    def env_action(self, action: Actions) -> Actions:
        """What the environment is given for actions of ``draw``."""


class ClassActor(Actor, Protocol):
    """An algorithm's own way from observations to actions.

    Attributes:
        memory_size: numbers that it keeps of each environment from step to step; 0 for none.
    """

    memory_size: int

    def output(self, obs: NDArray[Any], memory: Floats | None) -> NDArray[Any]:
        """What ``draw`` and ``mode`` take, of observations ``[N, *obs_shape]`` as they come; writes the next
        ``memory`` ``[N, memory_size]`` over the one before.
        """


class Head(Actor, Protocol):
    """The distribution of a description.

    Attributes:
        num_outputs: numbers that it takes from each row of the network's output.
    """

    num_outputs: int


class Box:
    """A box of actions with finite bounds.

    Args:
        low: lower bounds float32, of the shape of one action.
        high: upper bounds, likewise.

    Attributes:
        shape: of one action.
        num: numbers in one action, ``A``.
        low: ``[A]``.
        high: ``[A]``.
        half: half the width, ``[A]``.
        centre: ``[A]``.
    """

    def __init__(self, low: Floats, high: Floats) -> None:
        if low.shape != high.shape or low.size == 0 or not (low < high).all():
            raise ValueError(f"action bounds {low.tolist()} to {high.tolist()} are not a box")
        self.shape, self.num = low.shape, low.size
        self.low, self.high = low.reshape(-1), high.reshape(-1)
        # Halved before they are subtracted: bounds near the largest float would overflow.
        self.half, self.centre = self.high / 2 - self.low / 2, self.high / 2 + self.low / 2

    def stretch(self, unit: Floats) -> Floats:
        """``unit`` ``[N, A]`` in [-1, 1] to actions ``[N, *shape]``; overwrites it. Rounding never leaves the
        bounds.
        """
        unit *= self.half
        unit += self.centre
        np.maximum(unit, self.low, out=unit)
        np.minimum(unit, self.high, out=unit)
        return unit.reshape(len(unit), *self.shape)

    def clip(self, action: Floats) -> Floats:
        """``[N, *shape]`` within the bounds."""
        rows = action.reshape(len(action), self.num)
        return np.minimum(np.maximum(rows, self.low), self.high).reshape(action.shape)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions, each as likely as any other, and their log densities in [-1, 1]^A."""
        unit = rng.random((num, self.num), np.float32) * np.float32(2.0) - np.float32(1.0)
        return self.stretch(unit), np.full(num, -self.num * math.log(2.0), np.float32)


def evenly_spread(num: int) -> Floats:
    """The places ``[num]`` of environments that are all of the run's: from 0 to 1, 0 for a single one."""
    return np.linspace(0.0, 1.0, num, dtype=np.float32)
