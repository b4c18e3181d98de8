"""The model that several groups share: rounds that wait for no lost group, and the step of each.

A group trains on from the shared model and tells what it has learned since as a change of it. A round closes
when every living group has told; the shared model then moves by the mean of the changes (local SGD, Stich
2019), or by a step along it with Nesterov momentum (DiLoCo, arXiv 2311.08105, algorithm 1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Sums = NDArray[np.float64]


#: Intervals between two changes of a group after which it is late, as it has kept them at least twice.
INTERVALS = 2


@dataclass(frozen=True)
class GroupChange:
    """What one group has learned.

    Attributes:
        number: of this change, as the group counts them.
        change: ``[P]``, since the shared model that it went on from.
        statistics: what the sums of its observations have gained since; they add up.
        num_stepped: the outer step moves so many of the ``P`` numbers, the first ones; the others are
            averaged.
    """

    number: int
    change: Vector
    statistics: Sums
    num_stepped: int


class SharedRounds:
    """The rounds of one part of the algorithm.

    Args:
        count: number of groups.
        patience_s: longest wait of a round for a group that is late: from its first change on, and after
            ``INTERVALS`` of that group.
        learning_rate: size of the outer step; 1 with no momentum is the mean.
        momentum: of the outer step.

    Attributes:
        parameters: the shared model ``[P]``; None before group 0 has given its own.
        statistics: sums over the observations of all groups.
        round: number of rounds that have closed.
        living: the groups that a round waits for.
        distances: group -> how far its model was from the shared one in its last round, over the length of
            that one.
        joined: group -> number of rounds that it was part of.
        numbers: group -> number of its last change that is in the model.
    """

    def __init__(
        self, count: int, patience_s: float, learning_rate: float = 1.0, momentum: float = 0.0
    ) -> None:
        self._patience_s, self._rate, self._momentum = patience_s, learning_rate, momentum
        self.parameters: Vector | None = None
        self.statistics: Sums = np.empty(0)
        self.round = 0
        self.living = set(range(count))
        self.distances: dict[int, float] = {}
        self.joined: Counter[int] = Counter()
        self.numbers: dict[int, int] = {}
        self._velocity: Vector = np.empty(0, np.float32)
        self._told: dict[int, GroupChange] = {}
        self._heard_s: dict[int, float] = {}
        self._interval_s: dict[int, float] = {}
        self._passed_s: dict[int, float] = {}
        self._since_s = 0.0

    def found(self, change: GroupChange) -> None:
        """Begin with the model of group 0, which is its change since nothing."""
        self.parameters, self.statistics = change.change.copy(), change.statistics.copy()
        self._velocity = np.zeros(change.num_stepped, np.float32)
        self.numbers, self.round = {0: change.number}, self.round + 1

    def take(self, group: int, change: GroupChange, now_s: float) -> None:
        """Note what a group has learned; what comes again, as it may be lost, is passed over."""
        waiting = self._told.get(group)
        if change.number in (self.numbers.get(group), waiting and waiting.number):
            return
        if not self._told:
            self._since_s = now_s
        self._told[group] = change
        if group in self._heard_s:
            passed_s = now_s - self._heard_s[group]
            before_s = self._passed_s.get(group, passed_s if group in self.living else 0.0)
            # one that was away for long has no such pace: of two intervals, the shorter one is
            self._interval_s[group], self._passed_s[group] = min(passed_s, before_s), passed_s
        self._heard_s[group] = now_s

    def is_due(self, now_s: float) -> bool:
        """Whether all living groups have told, or the others have been waited for long enough."""
        return bool(self._told) and all(
            self._is_late(group, now_s) for group in self.living - self._told.keys()
        )

    def _is_late(self, group: int, now_s: float) -> bool:
        heard_s, interval_s = self._heard_s.get(group, self._since_s), self._interval_s.get(group, 0.0)
        return now_s - max(self._since_s, heard_s + INTERVALS * interval_s) >= self._patience_s

    def close(self) -> None:
        """Move the shared model by what the groups of this round have told; a group that has not is not
        waited for again until it tells.
        """
        assert self.parameters is not None
        told, self._told = self._told, {}
        step: Vector = np.stack([one.change for one in told.values()]).mean(0, dtype=np.float32)
        size = len(self._velocity)
        mean = step[:size]
        self._velocity = self._momentum * self._velocity + mean
        step[:size] = self._rate * (mean + self._momentum * self._velocity)
        self.parameters = self.parameters + step
        self.statistics = self.statistics + sum(one.statistics for one in told.values())
        self.living, self.round = set(told), self.round + 1
        self.joined.update(told.keys())
        length = float(np.linalg.norm(self.parameters)) or 1.0
        for group, one in told.items():
            self.distances[group] = float(np.linalg.norm(one.change - step)) / length
            self.numbers[group] = one.number
