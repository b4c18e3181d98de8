"""When the evaluator evaluates the newest policy: what that may cost, what makes it urgent, and what the end
of a run has time for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

#: Standard deviations beyond their mean in which a sum of lengths is believed to be: 97 of 100 are below.
SURELY = 2.0
#: Times as long as before that steps may take: other processes begin, end and load the machine.
SLOWER = 1.25


def rounds_in_time(left_s: float, most: int, width: int, episode_s: float, lengths: NDArray[np.int64]) -> int:
    """The number of rounds that most probably end in a time, by what earlier episodes of their policy took.

    Where all of those had one length, one round is tried at least: whether time cuts it says nothing of it.

    Args:
        left_s: seconds.
        most: rounds.
        width: episodes of a round.
        episode_s: seconds that an earlier episode took in the mean.
        lengths: ``[E]`` steps of each of these.
    """
    if left_s <= 0.0:
        return 0
    varies = float(lengths.std()) / max(1.0, float(lengths.mean()))
    num = width * np.arange(1, most + 1)
    most_s = SLOWER * episode_s * (num + SURELY * varies * np.sqrt(num))
    return int((most_s <= left_s).sum()) or int(varies == 0.0)


@dataclass
class EvaluationBudget:
    """The CPU time that evaluations may cost: a share of the machine, earned as time passes.

    A look at the newest policy is due when the CPU time of all earlier looks has been earned. The first
    ``EARLY_S`` seconds earn ``EARLY`` times the share, since a run's return changes most then. Looks of equal
    cost are evenly spaced: ``cost / (EARLY * cores)`` seconds apart at first, ``cost / cores`` later.

    Looks are granted in advance when the training return suggests progress:

    - ``RISEN`` looks when it has risen by ``PROGRESS`` of the range that it has covered or, with a goal, has
      to cover.
    - ``URGENT`` looks, enough for the fresh episodes of two policies, while it suggests that the goal is
      reached: it is at the goal, or has risen by what the last score lacked. Without exploration noise a
      policy often scores more than in training.

    No more is saved up than the first ``EARLY_S`` seconds earn: hours without a new policy are not followed
    by all the looks that they would have paid for.

    Fresh episodes of a race may cost as much as the looks have cost, so that looks that are long are not
    followed by minutes without any.

    Attributes:
        cores: the share times the number of cores: CPU seconds earned per second.
        goal: the mean return that ends the run; None if none does.
        spent_s: CPU seconds spent so far.
        looks_s: CPU seconds of them that were spent for looks.
        look_s: CPU seconds of the last look.
    """

    URGENT: ClassVar[int] = 12
    RISEN: ClassVar[int] = 1
    PROGRESS: ClassVar[float] = 0.1
    EARLY: ClassVar[int] = 2
    EARLY_S: ClassVar[float] = 60.0
    #: Seconds between two looks that nothing makes urgent.
    MIN_GAP_S: ClassVar[float] = 0.5

    cores: float
    goal: float | None = None
    spent_s: float = 0.0
    looks_s: float = 0.0
    look_s: float = 0.0
    _forgone_s: float = 0.0
    _looked_s: float = -math.inf
    _looked_at: float | None = None
    _lowest: float = math.inf
    _highest: float = -math.inf
    _lacked: float | None = None
    _promising: float = math.inf

    def wait_s(self, elapsed_s: float, training_return: float | None) -> float:
        """Seconds until the next look is due; 0 if it is due now.

        Args:
            elapsed_s: since the evaluator began.
            training_return: mean return of recent training episodes; None before the first.
        """
        ahead = self._ahead(training_return)
        self._forgone_s = max(self._forgone_s, self._earned_s(elapsed_s) - self._early_s - self.spent_s)
        due_s = self._earned_at_s(self.spent_s + self._forgone_s - ahead * self.look_s)
        gap_ends_s = -math.inf if ahead else self._looked_s + self.MIN_GAP_S
        return max(0.0, due_s - elapsed_s, gap_ends_s - elapsed_s)

    def look(self, elapsed_s: float, cost_s: float, score: float, training_return: float | None) -> None:
        """Record a look: its CPU seconds and the mean return of its episodes."""
        self.look_s = cost_s
        self._looked_s, self._looked_at = elapsed_s, training_return
        self._lacked = None if self.goal is None else self.goal - score
        self.looks_s += cost_s
        self.pay(cost_s)

    @property
    def num_rounds(self) -> float:
        """Rounds of a race, in each of which two policies play the episodes of a look, that the looks so far
        pay for; at least one.
        """
        left_s, round_s = 2 * self.looks_s - self.spent_s, 2 * self.look_s
        return max(1.0, left_s // round_s) if round_s else math.inf

    def pay(self, cost_s: float) -> None:
        """Record CPU seconds spent, for a look or for fresh episodes after it."""
        self.spent_s += cost_s

    @property
    def _early_s(self) -> float:
        """The CPU seconds that the first ``EARLY_S`` seconds earn."""
        return self.EARLY * self.EARLY_S * self.cores

    def _earned_s(self, elapsed_s: float) -> float:
        """The CPU seconds that have been earned by a time."""
        if elapsed_s <= self.EARLY_S:
            return self.EARLY * self.cores * elapsed_s
        return self._early_s + self.cores * (elapsed_s - self.EARLY_S)

    def _earned_at_s(self, needed_s: float) -> float:
        """The time at which this number of CPU seconds has been earned."""
        if needed_s <= self._early_s:
            return needed_s / (self.EARLY * self.cores)
        return self.EARLY_S + (needed_s - self._early_s) / self.cores

    def _ahead(self, training_return: float | None) -> int:
        """The number of looks granted in advance."""
        if training_return is None:
            return 0
        self._lowest = min(self._lowest, training_return)
        self._highest = max(self._highest, training_return)
        if self.goal is not None:
            if self._lacked is not None:
                self._promising, self._lacked = training_return + self._lacked, None
            if training_return >= min(self.goal, self._promising):
                return self.URGENT
        if self._looked_at is None:
            return self.RISEN
        risen = training_return - self._looked_at
        top = self._highest if self.goal is None else max(self._highest, self.goal)
        return self.RISEN if risen > 0 and risen >= self.PROGRESS * (top - self._lowest) else 0
