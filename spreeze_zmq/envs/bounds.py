"""The bounds that spaces of observations and actions declare, and what lies beyond them; imports no
Gymnasium.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import LARGEST

#: An observation may exceed its bounds by this share of them, as float32 rounds.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Beyond:
    """A number of an observation that is not within the bounds of its space: its place, and one bound."""

    place: int
    value: float
    bound: float

    def __str__(self) -> str:
        allowed = f"at {'most' if self.value > self.bound else 'least'} {self.bound:g}"
        return f"number {self.place} of an observation was {self.value:g}, observation_space allows {allowed}"


class Bounds:
    """The finite bounds of observations.

    Args:
        space: of one observation.

    Attributes:
        exist: whether there are any that numbers of its dtype can exceed.
    """

    def __init__(self, space: Any) -> None:
        self.exist = hasattr(space, "low") and bool(np.isfinite([space.low, space.high]).any())
        if self.exist and space.dtype.kind in "iu":
            kind = np.iinfo(space.dtype)
            self.exist = bool((space.low > kind.min).any() or (space.high < kind.max).any())
        if self.exist:
            self._low, self._high = (np.ravel(bound).astype(np.float64) for bound in (space.low, space.high))
            self._least, self._most = self._low - _slack(self._low), self._high + _slack(self._high)

    def first_beyond(self, obs: NDArray[Any]) -> Beyond | None:
        """The first number of observations ``[N, *obs_shape]`` that is not within them; None where all are,
        and for other spaces.
        """
        if not self.exist or obs[:1].size != self._low.size:
            return None
        rows = obs.reshape(len(obs), -1)
        out = (rows < self._least) | (rows > self._most)
        if not out.any():
            return None
        row, place = (int(index) for index in np.argwhere(out)[0])
        value = float(rows[row, place])
        bound = self._high[place] if value > self._most[place] else self._low[place]
        return Beyond(place, value, float(bound))


def _slack(bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far numbers may exceed their bounds, as float32 rounds."""
    return ROUNDING * np.maximum(1.0, np.where(np.isfinite(bounds), np.abs(bounds), 0.0))


def loose_bounds(low: NDArray[Any], high: NDArray[Any]) -> str:
    """The first bounds of a box that are infinite or beyond ``LARGEST``, in words; empty if none are."""
    loose = np.flatnonzero(~(np.maximum(np.abs(low), np.abs(high)).astype(np.float64) <= LARGEST))
    if not loose.size:
        return ""
    first = loose[0]
    return f"action {first} from {low.flat[first]:.6g} to {high.flat[first]:.6g}"


def action_limits(low: NDArray[Any], high: NDArray[Any]) -> tuple[list[float | None], ...]:
    """The bounds of each number of a box, None for those that count as none; empty if none counts."""
    bounds = np.stack(rounded_inward(low, high), -1).reshape(-1, 2)
    counts = np.abs(bounds) <= LARGEST
    if not counts.any():
        return ()
    return tuple(
        [bound if is_one else None for bound, is_one in zip(*pair, strict=True)]
        for pair in zip(bounds.tolist(), counts.tolist(), strict=True)
    )


def rounded_inward(low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The least and greatest float32 within bounds of any float dtype: a policy acts in float32, and the
    nearest float32 of a bound such as 0.1 may lie outside.
    """
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
    return low32, np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
