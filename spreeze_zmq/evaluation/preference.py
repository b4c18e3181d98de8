"""Which weights of a policy are looked at: their average, or the newest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spreeze_zmq.evaluation.contestant import Contestant

#: Most looks from one at which both are played to the next.
MOST_SPAN = 8


@dataclass
class Preference:
    """An average stands where single steps fall, but between two ways of acting it may act as neither. So
    both are looked at from time to time: at the next look after a change, then after twice as many, up to
    ``MOST_SPAN``.

    Attributes:
        averaged: whether the average is looked at.
        due: looks until both are.
    """

    averaged: bool = True
    due: int = 1
    _span: int = 1

    def is_due(self) -> bool:
        """Whether both are to be played at the look that begins."""
        self.due -= 1
        return self.due < 0

    def settle(self, look: Contestant, other: Contestant) -> Contestant:
        """The better of two looks at episodes with the same starts, whose weights are looked at from now on:
        the other one only if it is ahead by more than the standard error of the difference.
        """
        if change := _is_ahead(other, look):
            self.averaged = other.policy.averaged
        self._span = 1 if change else min(2 * self._span, MOST_SPAN)
        self.due = self._span
        return other if change else look


def _is_ahead(one: Contestant, other: Contestant) -> bool:
    if one.compares != other.compares:
        return one.compares
    num = min(one.num_episodes, other.num_episodes)
    lead = one.returns[:num] - other.returns[:num]
    error = lead.std(ddof=1) / np.sqrt(num) if num > 1 else 0.0
    return bool(num and lead.mean() > error)
