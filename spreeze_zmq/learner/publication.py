"""When a learner publishes, and what it writes down as it does."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Cadence:
    """Says when the next publication is due: by the clock, or by the count of updates.

    Args:
        interval_s: least time between two, where ``every`` is 0.
        every: critic updates between two.
    """

    def __init__(self, interval_s: float, every: int) -> None:
        self.interval_s = interval_s
        self.every = every
        self.published = 0
        self.due_s = 0.0

    def due(self, updates: int) -> bool:
        """Whether ``updates`` critic updates, or the time, call for one now; true once for each."""
        if self.every:
            crossed = updates // self.every
            self.published, crossed = max(crossed, self.published), crossed - self.published
            return crossed > 0
        now_s = time.monotonic()
        if now_s < self.due_s:
            return False
        self.due_s = now_s + self.interval_s
        return True

    def restart(self) -> None:
        """Count from 0 again."""
        self.published = 0


class Record:
    """One line of JSON for each counted publication, with the losses at that count and no time in it: two
    runs in lock-step write the same bytes. Nothing is written where publications go by the clock.
    """

    def __init__(self, path: Path, cadence: Cadence) -> None:
        self.path = path if cadence.every else None

    def write(self, counts: Mapping[str, int], metrics: Mapping[str, Any]) -> None:
        """Append one line; waits for the device."""
        if self.path is None:
            return
        self.path.parent.mkdir(exist_ok=True)
        line = json.dumps({**counts, **{name: float(value) for name, value in metrics.items()}})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
