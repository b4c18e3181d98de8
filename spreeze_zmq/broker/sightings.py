"""What samplers see of their environment, in a few figures: the producer's side and the run's row of it.

They cost next to nothing while environments step: of each rollout the least and the greatest reward are kept,
and a report looks at the newest one only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.bounds import Bounds
from spreeze_zmq.envs.forms import BYTE_MAX
from spreeze_zmq.envs.packed import Packing

#: Most numbers of observations that a report looks at.
MOST_NUMBERS = 65_536
#: Unit actions at least this large count as at their bounds; noise that is clipped there lies beyond.
AT_BOUNDS = 0.99
#: How the figures of several samplers become the run's; a figure that is not here is no part of the row.
_JOINED: dict[str, Callable[[Iterable[float]], float]] = {
    "reward_min": min,
    "reward_max": max,
    "reward_rms": max,
    "obs_mean": max,
    "obs_std": max,
    "obs_still": min,
    "action_at_bounds": min,
    "action_one_sided": min,
    "terminated": sum,
    "truncated": sum,
    "terminated_shortest": min,
    "terminated_longest": max,
}
#: The first number of an observation beyond its bounds, the exceeded one, and the sampler's env steps then.
OUTSIDE = frozenset({"outside_place", "outside_value", "outside_bound", "outside_steps"})


class Sightings:
    """The figures of one sampler: of all of its rewards, of its newest rollout, of how its episodes ended,
    and the first number of an observation that was seen beyond the bounds of its space.

    Args:
        env: the environment.
        space: of one of its observations; None where it has no bounds.

    Attributes:
        rollout: the newest one.
        num_steps: transitions up to its end.
    """

    def __init__(self, env: EnvironmentSpec, space: Any = None) -> None:
        self.rollout: Rollout | None = None
        self.num_steps = 0
        self._bounds, self._outside = Bounds(space), dict[str, float]()
        self._lowest, self._highest = math.inf, -math.inf  # reward
        self._first_obs: NDArray[Any] | None = None
        self._most = env.obs_max or BYTE_MAX
        self._low, self._high, self._packing = env.action_low, env.action_high, Packing.of(env)
        self._num_truncated = self._num_terminated = 0
        self._shortest, self._longest, self._at_longest = 0, 0, 0

    def take(self, rollout: Rollout) -> None:
        """Take the newest rollout."""
        self.rollout = rollout
        self.num_steps += rollout.num_transitions
        if rollout.reward is not None:
            self._lowest = min(self._lowest, float(rollout.reward.min()))
            self._highest = max(self._highest, float(rollout.reward.max()))

    def ended(self, lengths: NDArray[Any], terminated: NDArray[np.bool_]) -> None:
        """Count episodes that ended: lengths ``[K]`` and whether each was terminated ``[K]``."""
        lengths = lengths[terminated]
        self._num_truncated += len(terminated) - len(lengths)
        if not len(lengths):
            return
        longest, shortest = int(lengths.max()), int(lengths.min())
        if longest > self._longest:
            self._longest, self._at_longest = longest, 0
        self._at_longest += int((lengths == self._longest).sum())
        self._shortest = min(self._shortest, shortest) if self._num_terminated else shortest
        self._num_terminated += len(lengths)

    def figures(self) -> dict[str, float]:
        """For a report's ``gauges``; PROTOCOL.md says what each means."""
        found = {"truncated": float(self._num_truncated), "terminated": float(self._num_terminated)}
        if self._num_terminated:
            found["terminated_shortest"] = float(self._shortest)
            found["terminated_longest"] = float(self._longest)
            found["terminated_at_longest"] = float(self._at_longest)
        if self.rollout is None:
            return found
        rows = _observed(self.rollout, self._packing)
        observed = {} if rows is None else self._of_observations(rows) | self._beyond(rows)
        return found | self._of_rewards() | observed | self._of_actions()

    def _beyond(self, rows: NDArray[Any]) -> dict[str, float]:
        """The first number beyond its bounds, once one was seen in observations ``[K, size]``."""
        if not self._outside and (found := self._bounds.first_beyond(rows)):
            about = {"place": found.place, "value": found.value, "bound": found.bound}
            about["steps"] = self.num_steps
            self._outside = {f"outside_{name}": float(value) for name, value in about.items()}
        return self._outside

    def _of_rewards(self) -> dict[str, float]:
        assert self.rollout is not None
        if self.rollout.reward is None:
            return {}
        rms = math.sqrt(float(np.square(self.rollout.reward, dtype=np.float64).mean()))
        return {"reward_min": self._lowest, "reward_max": self._highest, "reward_rms": rms}

    def _of_observations(self, rows: NDArray[Any]) -> dict[str, float]:
        """The figures of observations ``[K, size]``."""
        if self._first_obs is None:
            self._first_obs = rows[0].copy()
        still = {"obs_still": float((rows == self._first_obs).all(0).mean())}
        if rows.dtype == np.uint8:
            rows = rows / np.float32(self._most)  # as networks see them
        mean, deviation = rows.mean(0, np.float64), rows.std(0, np.float64)
        return {**still, "obs_mean": float(np.abs(mean).max()), "obs_std": float(deviation.max())}

    def _of_actions(self) -> dict[str, float]:
        assert self.rollout is not None
        if self._low is None or self._high is None or self.rollout.action is None:
            return {}
        half = self._high / 2 - self._low / 2
        unit = np.clip((self.rollout.action - self._low) / half - 1.0, -1.0, 1.0)
        at_bounds, mean = np.abs(unit) >= AT_BOUNDS, unit.mean((0, 1))
        return {"action_at_bounds": float(at_bounds.mean()), "action_one_sided": float(np.abs(mean).mean())}


def _observed(rollout: Rollout, packing: Packing | None) -> NDArray[Any] | None:
    """``[K, size]``: some of its observations, at most ``MOST_NUMBERS``; None where it has none."""
    if rollout.obs is None or not rollout.obs.size:
        return None
    rows = rollout.obs.reshape(-1, math.prod(rollout.obs.shape[2:]))
    rows = rows[:: -(-rows.size // MOST_NUMBERS)]
    return rows if packing is None else packing.flat(rows)


def experience_row(gauges: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The run's figures from those of its samplers' reports; none where no sampler sends any."""
    rows = [
        {name: float(value) for name, value in one.items() if math.isfinite(value)} for one in gauges if one
    ]
    row: dict[str, float] = {}
    for name, join in _JOINED.items():
        if values := [one[name] for one in rows if name in one]:
            row[name] = float(join(values))
    if "terminated_longest" in row:
        row["terminated_at_longest"] = sum(
            one.get("terminated_at_longest", 0.0)
            for one in rows
            if one.get("terminated_longest") == row["terminated_longest"]
        )
    outside = [one for one in rows if one.keys() >= OUTSIDE]
    if outside:
        first = min(outside, key=lambda one: one["outside_steps"])
        row |= {name: first[name] for name in OUTSIDE}
    return row
