"""The returns of a run: of training episodes, reported by samplers, and of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.cells import cells
from spreeze_zmq.base.journal import is_look
from spreeze_zmq.broker.rows import kept, row_of

#: Episodes that the running mean of the training return covers, as in Stable-Baselines3.
EPISODES_WINDOW = 100
#: Episodes of the recent return, from which the evaluator predicts progress.
RECENT_EPISODES = 16
#: Most evaluations that are kept; beyond, looks are thinned evenly in time. All are written each time.
EVALUATIONS_KEPT = 2_000


@dataclass
class EpisodeStatistics:
    """Training episodes: mean and spread over the last ``EPISODES_WINDOW`` of this run, of which there are
    ``num_in_means``, and the ``recent_return``; the ``count`` goes on in a resumed run.
    """

    count: int = kept(int, "num_episodes")
    num_in_means: int = 0
    mean_return: float | None = None
    std_return: float | None = None
    recent_return: float | None = None
    mean_length: float | None = None
    _returns: list[float] = kept(list, "episode_returns", row=False)
    _lengths: list[int] = kept(list, "episode_lengths", row=False)

    def take(self, returns: NDArray[np.float32], lengths: NDArray[np.int32]) -> None:
        """Record episodes: returns and lengths ``[num_episodes]``."""
        self._returns = [*self._returns, *returns.tolist()][-EPISODES_WINDOW:]
        self._lengths = [*self._lengths, *lengths.tolist()][-EPISODES_WINDOW:]
        self.count += len(returns)

    def row(self) -> EpisodeStatistics:
        """Itself, with its means as they are now."""
        self.num_in_means = len(self._returns)
        if self._returns:
            returns = np.array(self._returns)
            self.mean_return, self.std_return = float(returns.mean()), float(returns.std())
            self.recent_return = float(returns[-RECENT_EPISODES:].mean())
            self.mean_length = float(np.mean(self._lengths))
        return self


@dataclass
class EvaluationRow:
    """One evaluation: when it arrived, and the run's env steps when its policy was published.

    ``interval`` is the 95 % interval of the mean return by Student's t, ``num_truncated`` counts the episodes
    that the evaluation cut, ``timed_out`` is whether its limit of time did, ``num_failed`` counts those that
    ended with a failure of their environment and do not count further, ``confirmed`` is whether the
    policy was chosen before they were played, ``info`` has the means of the environment's figures for their
    last steps.
    """

    t_s: float
    env_steps: int
    mean_return: float
    std_return: float
    interval: tuple[float, float] | None
    num_episodes: int
    mean_length: float
    num_truncated: int = 0
    timed_out: bool = False
    num_failed: int = 0
    confirmed: bool = False
    info: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Evaluations:
    """The evaluations of a run: first looks at policies, and fresh episodes of chosen ones (``confirmed``).

    Attributes:
        all: the fields of each message, and ``t_s``; beyond ``EVALUATIONS_KEPT`` those of looks evenly in
            time, and of the best.
    """

    all: list[dict[str, Any]] = kept(list, "evaluations")

    def take(self, fields: Mapping[str, Any], now_s: float) -> None:
        self.all.append({"t_s": now_s, **fields})
        if len(self.all) > EVALUATIONS_KEPT:
            self._thin()

    def _thin(self) -> None:
        """Keep the first look, the last one of each cell of time, and the best evaluation."""
        curve = self.looks or self.all
        times = [float(e["t_s"]) for e in curve]
        kept = [curve[0], self.best, *(curve[cell.stop - 1] for cell in cells(times, EVALUATIONS_KEPT))]
        wanted = set(map(id, kept))
        self.all[:] = [e for e in self.all if id(e) in wanted]

    @property
    def looks(self) -> list[dict[str, Any]]:
        """The evaluations of the learning curve."""
        return [*filter(is_look, self.all)]

    @property
    def best(self) -> dict[str, Any] | None:
        """The evaluation of the best policy, which is the one saved last."""
        return next((e for e in reversed(self.all) if e["best"]), None)

    @property
    def best_return(self) -> float | None:
        """The mean return of the best policy; None before the first."""
        best = self.best
        return None if best is None else float(best["mean_return"])

    def reached(self, goal: float, num_episodes: int) -> str:
        """The stop reason if the best policy reached the goal in ``num_episodes`` fresh episodes; else empty.

        An evaluator that does not send ``confirmed`` needs no fresh episodes. Episodes that the limit of time
        cut confirm nothing: where rewards are negative, their returns are too high. Nor do those beside which
        more have failed.
        """
        best = self.best
        if best is None or not best.get("confirmed", True) or best["mean_return"] < goal:
            return ""
        if best.get("timed_out", False) or best.get("num_failed", 0) > best["num_episodes"]:
            return ""
        if best["num_episodes"] < num_episodes and "confirmed" in best:
            return ""
        return f"return {best['mean_return']:g} >= {goal:.15g}"

    def rows(self) -> dict[str, EvaluationRow | None]:
        """The rows of the last look and of the best policy."""
        return {"last": _row(next(iter(self.looks[-1:]), None)), "best": _row(self.best)}


def _row(evaluation: Mapping[str, Any] | None) -> EvaluationRow | None:
    if evaluation is None:
        return None
    low, high = evaluation.get("interval_low"), evaluation.get("interval_high")
    interval = None if low is None or high is None else (low, high)
    return row_of(EvaluationRow, {**evaluation, "interval": interval})
