"""An environment's own spaces in plain data, for programs that act in it without the engine's adaptation."""

from __future__ import annotations

from typing import Any

import numpy as np


def action_start(space: Any) -> tuple[int, ...]:
    """The number that each discrete action of a Gymnasium space counts from; empty if all count from 0."""
    start = np.ravel(getattr(space, "start", 0))
    return tuple(start.tolist()) if start.any() else ()
