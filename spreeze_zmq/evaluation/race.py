"""Which policy of a run is the best: the rule, without sockets or environments.

Whoever looks at many policies and keeps the highest score keeps luck, so a look only nominates a challenger.
Challenger and best then play fresh episodes of the same starts in rounds, and the challenger takes the place
only if it is ahead by more than the 95 % interval of their difference, or when the rounds are spent by more
than its standard error, and above the mean of every episode that the best one has played; it is rejected once
it is behind. Episodes of a race count for who played them ever after, so the best policy's score moves with
its own further episodes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.evaluation.evaluation import t_interval

Returns = NDArray[np.float64]

#: A race is not decided by fewer episodes of each, unless it may have no more.
LEAST = 3


def _none() -> Returns:
    return np.zeros(0)


@dataclass
class Race:
    """A race between the best policy and a challenger, decided by what both have played so far.

    Of two equal policies with normally distributed returns the challenger wins 14 of 100 races at the
    default rounds, which costs nothing. See tests/benchmarks/best_rule.py for what the rule delivers on
    recorded returns.

    Attributes:
        earlier: ``[N]`` returns of the best policy before the race.
        round_size: episodes of each in a round.
        most: episodes of each after which the race ends.
        best: ``[B]`` returns of the best policy in the race; episode ``i`` of both had the same start.
        challenger: ``[C]`` likewise; the shorter of the two decides.
    """

    earlier: Returns
    round_size: int
    most: int
    best: Returns = field(default_factory=_none)
    challenger: Returns = field(default_factory=_none)

    @property
    def num_played(self) -> int:
        """Episodes that both have played."""
        return min(len(self.best), len(self.challenger))

    @property
    def num_due(self) -> int:
        """Episodes that each will have played after the next round."""
        return min(self.num_played + self.round_size, max(self.most, 1))

    @property
    def won(self) -> bool | None:
        """Whether the challenger has won; None while the race is open."""
        num = self.num_played
        spent = num >= self.most
        if num < LEAST and not spent:
            return None
        lead = self.challenger[:num] - self.best[:num]
        if lead.mean() <= 0.0:
            return False
        interval = t_interval(lead)
        ahead = interval is None or interval[0] > 0.0
        if spent and not ahead:
            ahead = bool(lead.mean() > lead.std(ddof=1) / np.sqrt(num))
        if ahead:
            return bool(self.challenger.mean() > np.concatenate([self.earlier, self.best]).mean())
        return False if spent else None
