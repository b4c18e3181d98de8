"""Where an observation has its action mask, which an environment may give in ``info`` instead."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The name of a mask in an info or in a Dict of observations.
NAME = "action_mask"


def mask_path(observation: Any) -> tuple[Any, ...]:
    """The keys that lead to the mask of an observation, or of a space of observations: of a Dict or of a Dict
    within it, the nearest; empty where there is none, or several are as near.
    """
    level: list[tuple[tuple[Any, ...], Any]] = [((), observation)]
    while level:
        level = [
            ((*path, key), part)
            for path, outer in level
            if isinstance(outer, Mapping)
            for key, part in outer.items()
        ]
        if found := [path for path, _ in level if path[-1] == NAME]:
            return found[0] if len(found) == 1 else ()
    return ()


def mask_in(observation: Any) -> Any:
    """The mask of an observation, or of a batch of them; None where it has none."""
    path = mask_path(observation)
    return functools.reduce(operator.getitem, path, observation) if path else None


def allows(masks: NDArray[np.bool_], sizes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether each mask ``[..., sum(sizes)]`` allows a choice of every discrete action, ``[...]``."""
    starts = [0, *itertools.accumulate(sizes[:-1])]
    return np.asarray(np.logical_or.reduceat(masks, starts, axis=-1).all(-1))
