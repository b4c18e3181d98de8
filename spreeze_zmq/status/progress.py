"""Progress of a run towards the stop condition that comes first.

A return is left out: a learning curve cannot be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """Progress towards one stop condition.

    Attributes:
        done: share, 0 to 1.
        left_s: remaining seconds at the present rate.
    """

    done: float
    left_s: float


def progress(status: Mapping[str, Any]) -> Progress | None:
    """Progress towards the condition that comes first at the present rates; None if none is predictable."""
    stop, candidates = status["stop"], []
    if stop["minutes"] is not None:
        candidates.append(_towards(60 * stop["minutes"], status["t_s"], 1.0))
    for count in ("env_steps", "trained_transitions"):
        if stop[count] is not None and status[f"{count}_per_s"] > 0:
            candidates.append(_towards(stop[count], status[count], status[f"{count}_per_s"]))
    return min(candidates, key=lambda one: one.left_s, default=None)


def _towards(limit: float, now: float, per_s: float) -> Progress:
    return Progress(done=min(1.0, now / limit), left_s=max(0.0, (limit - now) / per_s))
