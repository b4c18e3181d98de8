"""What a policy file says of its environment's own spaces, which its engine adapts for the networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError, in_one_line
from spreeze_zmq.policy.actor import Actions
from spreeze_zmq.policy.description import counts
from spreeze_zmq.policy.file import MOST_ENVIRONMENT, parsed

_FLATTEN = "gymnasium.spaces.flatten(env.observation_space, obs)"


@dataclass(frozen=True)
class ObservationPart:
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
        shape = counts(table, "shape", least=0) if table["shape"] else ()
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
        shape = shape_of(value)
        num_leading = -1 if shape is None else len(shape) - len(self.shape)
        if shape is None or num_leading < 0 or shape[num_leading:] != self.shape:
            got = type(value).__name__ if shape is None else shape
            raise InputError(f"{self.name} is of shape {got}, expected {self.shape} or a batch of it")
        leading = shape[:num_leading]
        if not self.sizes:
            return np.asarray(value, np.float32).reshape(*leading, self.size)
        given = np.asarray(value).reshape(*leading, len(self.sizes))
        index = given.astype(np.int64) - np.asarray(self.start)
        if given.dtype.kind not in "iu" or ((index < 0) | (index >= self.sizes)).any():
            last = [first + size - 1 for first, size in zip(self.start, self.sizes, strict=True)]
            raise InputError(f"{self.name} is {value!r:.60}, expected integers {list(self.start)} to {last}")
        rows = np.zeros((*leading, self.size), np.float32)
        np.put_along_axis(rows, index + np.cumsum([0, *self.sizes[:-1]]), 1.0, axis=-1)
        return rows


class OwnEnvironment:
    """Converts the environment's own observations, and to its own actions.

    Args:
        environment: the ``environment`` of run.json; empty where it is not known.
        description: of the policy; its ``distribution`` and ``observation`` are read.

    Attributes:
        action_start: the number that each discrete action counts from; empty if all count from 0.
        has_row: whether an action is a row of discrete ones, which may be a row of a single one.
        limits: the lowest and highest actions ``[A]`` float32 of a box that is bounded in part, infinite
            where it is not; None for all others.
        parts: of an observation that the engine flattens, in order; empty for a Box, or where they are not
            known.

    Raises:
        ValueError: the table does not fit the policy.
    """

    def __init__(self, environment: Mapping[str, Any], description: Mapping[str, Any]) -> None:
        start = self.action_start = _integers(environment, "action_start")
        if start and len(start) != (num := len(choices(description["distribution"]))):
            raise ValueError(f"action_start has {len(start)} numbers for {num} discrete actions")
        self.has_row = environment.get("action_kind") == "multi_discrete"
        self.limits = limits_of(environment)
        self.parts = [ObservationPart.described(table) for table in environment.get("obs_parts", [])]
        size = sum(part.size for part in self.parts)
        if self.parts and (size,) != (shape := counts(description["observation"], "shape")):
            raise ValueError(f"obs_parts have {size} numbers, the policy observes {list(shape)}")

    @classmethod
    def described(cls, metadata: Mapping[str, str], description: Mapping[str, Any]) -> Self:
        """As the metadata of a policy file describe it. Raises ValueError."""
        environment = parsed(metadata.get("environment", "{}"), MOST_ENVIRONMENT)
        if not isinstance(environment, dict):
            raise ValueError("its environment is not a table")
        return cls(environment, description)

    def action(self, action: Actions) -> Actions:
        """The environment's own actions ``[N, *action_shape]`` for those of a policy, of which discrete ones
        count from 0 and a single one is ``[N]``; those of a box that is bounded in part are clipped.

        Raises:
            InputError: they have another number of actions than there are bounds.
        """
        if self.limits is not None:
            if action.shape[1:] != self.limits[0].shape:
                found = f"bounds {len(self.limits[0])} actions, the policy gives {list(action.shape[1:])}"
                raise InputError(f"the policy does not fit its environment, which {found}")
            return np.minimum(np.maximum(action, self.limits[0]), self.limits[1])
        rows = in_rows(action) if self.has_row else action
        return shifted(rows, np.asarray(self.action_start)) if self.action_start else rows

    def observation(self, obs: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """One observation or a batch, the environment's own or flattened, as an array.

        Args:
            obs: a Dict or Tuple of arrays, one number for a Discrete, or an array ``[*shape]``.
            shape: of one observation as the policy takes it.

        Returns:
            ``[*shape]``, or ``[N, *shape]`` if every part has a leading axis of ``N``.

        Raises:
            InputError: it fits neither; the message names the shapes.
        """
        if self._is_own(obs, shape):
            rows = [part.rows(obs) for part in self.parts]
            if len({row.shape[:-1] for row in rows}) > 1:
                leading = ", ".join(
                    f"{part.name} {row.shape[:-1]}" for part, row in zip(self.parts, rows, strict=True)
                )
                raise InputError(f"the parts of an observation are batches of different shapes: {leading}")
            obs = np.concatenate(rows, axis=-1)
        given = shape_of(obs)
        if given == shape or (given is not None and given[1:] == shape):
            return np.asarray(obs)
        batch = "(N, " + ", ".join(map(str, shape)) + ")"
        got = type(obs).__name__ if given is None else given
        flatten = "" if given and len(given) > 1 else f"; {_FLATTEN} flattens a Dict, Tuple or Discrete"
        raise InputError(
            f"the policy takes observations of shape {shape}, or a batch {batch}, got {got}{flatten}"
        )

    def _is_own(self, obs: Any, shape: tuple[int, ...]) -> bool:
        """Whether ``obs`` has the form of the environment's own observations, and is not flattened yet."""
        if not self.parts:
            return False
        path = self.parts[-1].path
        if not path:  # a single Discrete or MultiDiscrete
            given = shape_of(obs)
            flat = given == shape or (given is not None and given[1:] == shape)
            alike = given == shape == self.parts[0].sizes  # n numbers: one of a Discrete(n), or n of them
            if alike and not _is_one_hot(np.asarray(obs)):
                raise InputError(
                    f"{shape[0]} numbers are taken for one flattened observation, but these are not one-hot; "
                    f"flatten each observation of a batch of {shape[0]}: {_FLATTEN}"
                )
            return not flat
        if isinstance(path[0], str):
            return isinstance(obs, Mapping)
        return isinstance(obs, Mapping) or (isinstance(obs, tuple) and len(obs) == path[0] + 1)


def in_rows(action: Any) -> Any:
    """Discrete actions ``[N]`` or ``[N, A]`` as rows ``[N, A]``."""
    return action if action.ndim > 1 else action[:, None]


def shifted(action: Any, start: Any) -> Any:
    """Discrete actions ``[N]`` or ``[N, A]`` that count from 0, counted from ``start`` ``[A]``."""
    return action + (start if action.ndim > 1 else start[0])


def _is_one_hot(row: NDArray[Any]) -> bool:
    return bool(np.count_nonzero(row) == 1 and row.max() == 1)


def _integers(table: Mapping[str, Any], name: str) -> tuple[int, ...]:
    values = table.get(name, [])
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"{name} is {values!r:.60}, expected a list of integers")
    return tuple(np.asarray(values, np.int64).tolist())


def limits_of(table: Mapping[str, Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """The ``limits`` of an environment's table. Raises ValueError for other than pairs of numbers or null."""
    rows = table.get("action_limits") or None
    if rows is None:
        return None
    try:
        bounds = np.array(rows, np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        bounds = np.empty(0)
    if bounds.ndim != 2 or bounds.shape[1] != 2 or np.isinf(bounds).any():
        raise ValueError(f"action_limits is {rows!r:.60}, expected a pair of numbers or null for each action")
    low, high = (column.astype(np.float32) for column in bounds.T)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def choices(distribution: Mapping[str, Any]) -> tuple[int, ...]:
    """The number of choices of each discrete action of a policy; empty for actions in a box."""
    if distribution["kind"] == "epsilon_greedy":
        return (distribution["num_actions"],)
    return tuple(distribution["sizes"]) if distribution["kind"] == "categorical" else ()


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an array or of nested lists of numbers; None for anything else.

    Raises:
        InputError: it is, or holds, a tensor that NumPy does not take.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    except (TypeError, RuntimeError) as error:  # on a device, of bfloat16, or with a gradient
        mend = "of a tensor give it policy(obs.detach().float().cpu().numpy())"
        raise InputError(f"the observation is no array: {in_one_line(error)}; {mend}") from None
    return array.shape if array.dtype.kind in "buif" else None
