"""The parts of an environment's own observations, flattened as ``gymnasium.spaces.flatten`` does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import InputError
from spreeze_zmq.policy.description import counts


@dataclass(frozen=True)
class Part:
    """One part of an observation: numbers, or discrete ones that become one-hot.

    Attributes:
        path: the keys of Dicts and the places in Tuples that lead to it; empty if it is the whole.
        shape: of its value.
        sizes: number of choices of each of its numbers; empty if they are not discrete.
        start: the number that each of them counts from.
    """

    path: tuple[str | int, ...]
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()

    @classmethod
    def described(cls, table: Mapping[str, Any]) -> Self:
        """The part that an entry of ``obs_parts`` describes. Raises KeyError or ValueError."""
        path = tuple(table["path"])
        if not all(isinstance(key, str | int) for key in path):
            raise ValueError(f"path is {path!r:.60}, expected a list of names and numbers")
        shape = counts(table, "shape") if table["shape"] else ()
        if "sizes" not in table:
            return cls(path, shape)
        sizes, start = counts(table, "sizes"), tuple(table["start"])
        if not len(sizes) == len(start) == math.prod(shape) or any(type(first) is not int for first in start):
            raise ValueError(f"sizes {sizes!r:.60} and start {start!r:.60} do not fit the shape {shape}")
        return cls(path, shape, sizes, start)

    @property
    def name(self) -> str:
        """Its place in an observation, as Python writes it."""
        return "obs" + "".join(f"[{key!r}]" for key in self.path)

    @property
    def size(self) -> int:
        """How many numbers it is flattened to."""
        return sum(self.sizes) if self.sizes else math.prod(self.shape)

    def rows(self, obs: Any) -> NDArray[np.float32]:
        """Its numbers in one observation or in a batch: ``[*leading axes, size]``.

        Raises:
            InputError: the observation has no such part, or it is of another shape or out of range.
        """
        value = obs
        for key in self.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError) as error:
                raise InputError(f"the observation has no {self.name}, which the policy takes") from error
        given = shape_of(value)
        num_leading = -1 if given is None else len(given) - len(self.shape)
        if given is None or num_leading < 0 or given[num_leading:] != self.shape:
            got = type(value).__name__ if given is None else given
            raise InputError(f"{self.name} is of shape {got}, expected {self.shape} or a batch of it")
        leading = given[:num_leading]
        if not self.sizes:
            return np.asarray(value, np.float32).reshape(*leading, self.size)
        index = np.asarray(value).reshape(*leading, len(self.sizes)) - np.asarray(self.start)
        if not np.issubdtype(index.dtype, np.integer) or ((index < 0) | (index >= self.sizes)).any():
            last = [first + size - 1 for first, size in zip(self.start, self.sizes, strict=True)]
            raise InputError(f"{self.name} is {value!r:.60}, expected integers {list(self.start)} to {last}")
        rows = np.zeros((*leading, self.size), np.float32)
        np.put_along_axis(rows, index + np.cumsum([0, *self.sizes[:-1]]), 1.0, axis=-1)
        return rows


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an array or of nested lists of numbers; None for anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array.shape if array.dtype.kind in "buif" else None
