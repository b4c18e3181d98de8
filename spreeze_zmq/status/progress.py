"""How far a run is on its way to the stop condition that comes first.

A return is left out: how a learning curve goes on cannot be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """The way to one stop condition.

    Attributes:
        done: share of it, 0 to 1.
        left_s: seconds that remain at the present rate.
    """

    done: float
    left_s: float


def progress(status: Mapping[str, Any]) -> Progress | None:
    """The condition that comes first at the present rates; None where none can be foreseen."""
    stop, found = status["stop"], []
    if stop["minutes"] is not None:
        found.append(_towards(60 * stop["minutes"], status["t_s"], 1.0))
    for count in ("env_steps", "trained_transitions"):
        if stop[count] is not None and status[f"{count}_per_s"] > 0:
            found.append(_towards(stop[count], status[count], status[f"{count}_per_s"]))
    return min(found, key=lambda way: way.left_s, default=None)


def remaining_s(status: Mapping[str, Any]) -> float | None:
    """Seconds until the first stop condition that can be foreseen; None where none can."""
    way = progress(status)
    return None if way is None else way.left_s


def _towards(limit: float, now: float, per_s: float) -> Progress:
    return Progress(done=min(1.0, now / limit), left_s=max(0.0, (limit - now) / per_s))
