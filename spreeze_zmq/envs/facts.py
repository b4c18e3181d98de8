"""What is odd about an environment without keeping anybody from stepping it, as plain data for a plan.

The rules of ``spreeze_zmq.run.doctor`` say what it means for the learning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Steps of random actions that are looked at, and the longest time for them.
STEPS, STEPS_S = 20, 0.02
#: Most names of an info that are kept.
MOST_NAMES = 64
#: An observation may exceed its bounds by this share of them, as float32 rounds.
ROUNDING = 1e-5
#: Wrappers whose running statistics change what a seed gives.
_CHANGING = {"NormalizeObservation"}


def facts_of(batch: Any) -> dict[str, Any]:
    """Reset a batch of one environment twice with one seed, and take some random steps.

    Returns:
        ``wrappers``, the names of Gymnasium's around it; ``info``, the names of its info's entries;
        ``same_seed_differs``; ``outside``, the first number beyond the bounds of its space, in words. What is
        not the case is left out.
    """
    wrappers = list(_wrappers(batch))
    first, info = batch.reset(seed=0)
    first, names = first.copy(), set(info)
    outside = beyond(first, batch.single_observation_space)
    until_s = time.monotonic() + STEPS_S
    for _ in range(STEPS):
        obs, _, _, _, info = batch.step(batch.action_space.sample())
        names |= set(info)
        outside = outside or beyond(obs, batch.single_observation_space)
        if time.monotonic() >= until_s:
            break
    again, _ = batch.reset(seed=0)
    seeded = batch.backend == "gymnasium" and not _CHANGING & set(wrappers)
    found = {
        "wrappers": wrappers,
        "info": sorted(name for name in names if isinstance(name, str) and not name.startswith("_"))[
            :MOST_NAMES
        ],
        "same_seed_differs": seeded and not np.array_equal(first, again),
        "outside": outside,
    }
    return {name: value for name, value in found.items() if value}


def beyond(obs: NDArray[Any], space: Any) -> str:
    """The first number of observations ``[N, *obs_shape]`` that is not within a box's bounds, in words; empty
    where all are, and for other spaces.
    """
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or obs.shape[1:] != low.shape:
        return ""
    low, high = np.ravel(low).astype(np.float64), np.ravel(high).astype(np.float64)
    rows = obs.reshape(len(obs), -1).astype(np.float64)
    slack = ROUNDING * np.maximum(1.0, np.where(np.isfinite(low), np.abs(low), 0.0))
    above = ROUNDING * np.maximum(1.0, np.where(np.isfinite(high), np.abs(high), 0.0))
    out = (rows < low - slack) | (rows > high + above)
    if not out.any():
        return ""
    row, place = (int(index) for index in np.argwhere(out)[0])
    allowed = f"observation_space allows {low[place]:g} to {high[place]:g}"
    return f"number {place} of an observation was {rows[row, place]:g}, {allowed}"


def _wrappers(batch: Any) -> Iterator[str]:
    """Gymnasium's own wrappers around the environment, the outermost first."""
    for env in getattr(batch, "envs", ())[:1]:
        while hasattr(env, "env"):
            if type(env).__module__.startswith("gymnasium.wrappers"):
                yield type(env).__name__
            env = env.env
