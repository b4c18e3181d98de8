"""Action masks: which actions an environment allows at each step, read at the door, and carried behind each
observation of a batch.

A mask is a flag for each choice of a discrete action; those of a MultiDiscrete one after the other. It is
``info["action_mask"]`` of every reset and step, or the part ``action_mask`` of a Dict of observations or of a
Dict within it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from spreeze_zmq.base.masks import NAME, allows, mask_path
from spreeze_zmq.envs.door import WrongReturn, shown


def gives_masks(observation: Space[Any], action: Space[Any], info: Any) -> bool:
    """Whether an environment of discrete actions has a mask in its observations, or in the info of a reset.

    Args:
        observation: the environment's own space.
        action: likewise.
        info: of a reset; of one environment or of a batch.
    """
    if not isinstance(action, spaces.Discrete | spaces.MultiDiscrete):
        return False
    return bool(mask_path(observation)) or (isinstance(info, Mapping) and NAME in info)


class MaskReader:
    """Reads the mask of one step of one environment.

    Args:
        observation: the environment's own space.
        action: a Discrete or MultiDiscrete.

    Attributes:
        sizes: number of choices of each discrete action.
    """

    def __init__(self, observation: Space[Any], action: Any) -> None:
        path = mask_path(observation)
        self._is_part, self._path = bool(path), path or (NAME,)
        names = "".join(f"[{key!r}]" for key in self._path)
        self._where = f"{'the observation' if self._is_part else 'info'}{names}"
        self.sizes = (int(action.n),) if isinstance(action, spaces.Discrete) else tuple(action.nvec.tolist())
        self._num = sum(self.sizes)

    def __call__(
        self, obs: Any, info: Any, terminated: Any = False, truncated: Any = False
    ) -> NDArray[np.bool_]:
        """``[A]``; where the episode has ``terminated`` no action need be legal.

        Args:
            obs: as the environment gave it.
            info: likewise.
            terminated: whether this was the last step.
            truncated: whether it was the last that was taken, of an episode that could go on.

        Raises:
            WrongReturn: there is no mask, it is no row of 0 and 1 of that length, or it allows no action.
        """
        mask = obs if self._is_part else info
        for key in self._path:
            if not isinstance(mask, Mapping) or key not in mask:
                raise WrongReturn(f"no {self._where}, which its reset() gave: each step needs one")
            mask = mask[key]
        try:
            numbers = np.asarray(mask).ravel()
            fits = numbers.dtype.kind in "biuf" and numbers.size == self._num
        except Exception:  # an object of the user's may raise anything
            fits = False
        if not fits or not (numbers.dtype.kind == "b" or ((numbers == 0) | (numbers == 1)).all()):
            of = f" of {mask.dtype}" if isinstance(mask, np.ndarray) and mask.size <= 8 else ""
            what = f"{self._num} numbers, 1 for each action that is legal and 0 for each other one"
            raise WrongReturn(f"{self._where} = {shown(mask)}{of}, expected {what}")
        legal: NDArray[np.bool_] = numbers.astype(np.bool_)
        if not terminated and not allows(legal[None], self.sizes)[0]:
            why = "and no episode ended"
            if truncated:
                why = "though the episode is only truncated: its last observation needs one"
            raise WrongReturn(f"{self._where} = {shown(mask)}, which allows no action, {why}")
        return legal


@dataclass(frozen=True)
class Behind:
    """How rows ``[N, size + A]`` of a batch hold an observation and, behind it, the mask of its step.

    Whatever becomes of an observation, in shared memory, at a reset or after a failure, becomes of its mask.

    Attributes:
        shape: of one observation.
        sizes: number of choices of each discrete action.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return math.prod(self.shape) + sum(self.sizes)

    def space(self, dtype: Any) -> spaces.Box:
        """The space of a row."""
        low, high = (0, 1) if np.dtype(dtype).kind == "b" else _limits(np.dtype(dtype))
        return spaces.Box(low, high, (self.width,), dtype)

    def parted(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Observations ``[N, *shape]`` and masks ``[N, A]`` bool."""
        num = sum(self.sizes)
        obs, masks = rows[:, :-num], rows[:, -num:]
        return obs.reshape(len(rows), *self.shape), masks != 0

    def drawn(self, masks: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
        """Uniform actions that masks ``[N, A]`` allow, ``[N]``, or ``[N, k]`` for several discrete ones."""
        keys = np.where(masks, rng.random(masks.shape), -1.0)
        ends = list(itertools.accumulate(self.sizes))
        parts = [keys[:, end - size : end].argmax(1) for end, size in zip(ends, self.sizes, strict=True)]
        return parts[0] if len(parts) == 1 else np.stack(parts, 1)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max
