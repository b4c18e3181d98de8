"""The memory that a batch shares with its worker processes: one slot for each environment."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ..errors import InvalidEnvironment

#: Bytes for the options of a reset, as JSON.
OPTIONS_BYTES = 4096
#: Every array begins on a line of the cache of its own.
ALIGNMENT = 64


@dataclass(frozen=True)
class Layout:
    """What a slot holds, as both sides agree on it.

    Attributes:
        num_envs: how many slots, ``N``.
        num_workers: how many processes.
        obs_shape: of one observation.
        obs_dtype: its dtype's name.
        action_shape: of one action.
        action_dtype: its dtype's name.
    """

    num_envs: int
    num_workers: int
    obs_shape: tuple[int, ...]
    obs_dtype: str
    action_shape: tuple[int, ...]
    action_dtype: str

    def arrays(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of every array, by the name of its attribute in ``Slots``."""
        num_envs, obs = self.num_envs, np.dtype(self.obs_dtype)
        each: Mapping[str, Any] = {
            "reward": np.float64,
            "terminated": np.bool_,
            "truncated": np.bool_,
            "failed": np.bool_,
            "lost": np.bool_,
            "chosen": np.bool_,
            "seed": np.int64,
        }
        return {
            "obs": ((num_envs, *self.obs_shape), obs),
            "final_obs": ((num_envs, *self.obs_shape), obs),
            "action": ((num_envs, *self.action_shape), np.dtype(self.action_dtype)),
            **{name: ((num_envs,), np.dtype(dtype)) for name, dtype in each.items()},
            "told": ((self.num_workers,), np.dtype(np.int64)),
            "at": ((self.num_workers, 2), np.dtype(np.int64)),
            "options": ((OPTIONS_BYTES,), np.dtype(np.uint8)),
        }


class Slots:
    """The shared arrays. The memory has no name: it is gone with the last process that holds it.

    Attributes:
        obs: ``[N, *obs]``, written by the worker.
        final_obs: ``[N, *obs]`` of the episodes that ended.
        action: ``[N, *action]``, written by the batch.
        reward: ``[N]`` float64.
        terminated: ``[N]`` bool.
        truncated: ``[N]`` bool.
        failed: ``[N]`` bool: the step did not count, and a message tells why.
        lost: ``[N]`` bool: the state went with a dead worker; the next step ends the episode.
        chosen: ``[N]`` bool: which environments a reset is for.
        seed: ``[N]`` int64 of a reset; below 0 for none.
        told: ``[workers]`` int64: how many failures each worker has sent.
        at: ``[workers, 2]`` int64: which unit each worker is stepping, by its first row, and which
            environment within it.
        options: of a reset, JSON ended by a zero byte.
    """

    obs: NDArray[Any]
    final_obs: NDArray[Any]
    action: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    chosen: NDArray[np.bool_]
    seed: NDArray[np.int64]
    told: NDArray[np.int64]
    at: NDArray[np.int64]
    options: NDArray[np.uint8]

    def __init__(self, layout: Layout, fd: int | None = None):
        self.layout = layout
        offsets, size = {}, 0
        for name, (shape, dtype) in layout.arrays().items():
            offsets[name] = size
            size += -(-int(np.prod(shape)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.fd = os.memfd_create("spreeze-envs") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        for name, (shape, dtype) in layout.arrays().items():
            setattr(self, name, np.ndarray(shape, dtype, memory, offsets[name]))

    def put_options(self, options: Mapping[str, Any] | None) -> None:
        """Leave the options of a reset for the workers.

        Raises:
            ValueError: they are no plain data, or too long.
        """
        try:
            text = json.dumps(options).encode()
        except TypeError as error:
            raise ValueError(f"options for environments in workers are plain data, but: {error}") from None
        if len(text) >= OPTIONS_BYTES:
            raise ValueError(f"options of {len(text)} bytes, but workers take at most {OPTIONS_BYTES - 1}")
        self.options[: len(text)] = np.frombuffer(text, np.uint8)
        self.options[len(text)] = 0

    def take_options(self) -> dict[str, Any] | None:
        """What ``put_options`` left."""
        text = self.options.tobytes()
        options: dict[str, Any] | None = json.loads(text[: text.index(0)])
        return options


def layout_of(
    env_id: str, num_envs: int, num_workers: int, observation: Space[Any], action: Space[Any]
) -> Layout:
    """The slots of environments with these spaces.

    Raises:
        InvalidEnvironment: their observations or actions are no arrays of one shape.
    """
    for what, space in (("observations", observation), ("actions", action)):
        if (
            space.shape is None
            or space.dtype is None
            or (what == "observations" and not isinstance(space, Box))
        ):
            raise InvalidEnvironment(
                f"{env_id}: its {what} are a {type(space).__name__}, which fits into no shared memory"
                " (num_workers=0 steps it in this process)"
            )
    assert observation.shape is not None
    assert action.shape is not None
    return Layout(
        num_envs, num_workers, observation.shape, str(observation.dtype), action.shape, str(action.dtype)
    )
