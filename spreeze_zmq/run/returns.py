"""The returns of a run: of training episodes, reported by samplers, and of evaluations."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Episodes, Evaluation, EvaluationRow

#: Episodes that the running mean of the training return covers, as in Stable-Baselines3.
EPISODES_WINDOW = 100
#: Episodes of the recent return, from which the evaluator predicts progress.
RECENT_EPISODES = 16
#: Most evaluations that are kept; beyond, every second one of the older half is dropped.
EVALUATIONS_KEPT = 20_000


class TrainingEpisodes:
    """Returns and lengths of the last training episodes, and the number of all."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=EPISODES_WINDOW)
        self.lengths: deque[int] = deque(maxlen=EPISODES_WINDOW)
        self.count = 0

    def take(self, returns: NDArray[np.float32], lengths: NDArray[np.int32]) -> None:
        """Record episodes: returns and lengths ``[num_episodes]``."""
        self.returns.extend(returns.tolist())
        self.lengths.extend(lengths.tolist())
        self.count += len(returns)

    def row(self) -> Episodes:
        """The status row."""
        recent = list(self.returns)[-RECENT_EPISODES:]
        return {
            "count": self.count,
            "mean_return": float(np.mean(self.returns)) if self.returns else None,
            "std_return": float(np.std(self.returns)) if self.returns else None,
            "recent_return": float(np.mean(recent)) if recent else None,
            "mean_length": float(np.mean(self.lengths)) if self.lengths else None,
        }


class Evaluations:
    """The evaluations of a run: first looks at policies, and fresh episodes of chosen ones (``confirmed``).

    Only looks make the learning curve: fresh episodes are of policies that were chosen for a high score.

    Attributes:
        all: the fields of each message, and ``t_s``.
    """

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def take(self, fields: Mapping[str, Any], now_s: float) -> None:
        """Record an evaluation."""
        self.all.append({"t_s": now_s, **fields})
        if len(self.all) > EVALUATIONS_KEPT:
            best, older = self.best, self.all[: EVALUATIONS_KEPT // 2]
            self.all[: len(older)] = [e for index, e in enumerate(older) if index % 2 or e is best]

    @property
    def looks(self) -> list[dict[str, Any]]:
        """The evaluations of the learning curve."""
        return [e for e in self.all if not e.get("confirmed", False)]

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

        An evaluator that does not send ``confirmed`` needs no fresh episodes.
        """
        best = self.best
        if best is None or not best.get("confirmed", True) or best["mean_return"] < goal:
            return ""
        if best["num_episodes"] < num_episodes and "confirmed" in best:
            return ""
        return f"return {best['mean_return']:.1f} >= {goal:g}"

    def rows(self) -> Evaluation:
        """The status rows of the last look and of the best policy."""
        looks = self.looks
        return {"last": _row(looks[-1] if looks else None), "best": _row(self.best)}


def _row(evaluation: Mapping[str, Any] | None) -> EvaluationRow | None:
    if evaluation is None:
        return None
    has_interval = "interval_low" in evaluation and "interval_high" in evaluation
    return {
        "t_s": evaluation["t_s"],
        "env_steps": evaluation["env_steps"],
        "mean_return": evaluation["mean_return"],
        "std_return": evaluation["std_return"],
        "interval": (evaluation["interval_low"], evaluation["interval_high"]) if has_interval else None,
        "num_episodes": evaluation["num_episodes"],
        "mean_length": evaluation["mean_length"],
        "num_truncated": evaluation.get("num_truncated", 0),
        "timed_out": evaluation.get("timed_out", False),
        "confirmed": evaluation.get("confirmed", False),
        "info": evaluation.get("info", {}),
    }
