"""Limits how many updates are in flight on a device, and measures how busy it is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Any, because torch's stubs lack much of it.
cuda: Any = torch.cuda

#: Updates that may be launched but unfinished: enough to keep the device busy while the host receives
#: rollouts, and few enough for fresh published weights.
MOST_IN_FLIGHT = 8


class Work:
    """The updates that are launched on a device.

    Args:
        device: as torch names it. On a CPU an update ends with its call, and nothing is measured.
    """

    def __init__(self, device: str):
        self.device = torch.device(device)
        self._cuda = self.device.type == "cuda"
        self._in_flight: deque[tuple[Any, Any]] = deque()
        self._idle_events: list[tuple[Any, Any]] = []
        self._busy_s = 0.0
        self._looked_at = (time.monotonic(), 0.0)
        self._busy = 0.0

    @contextmanager
    def update(self) -> Iterator[None]:
        """Count the launches inside as one update; wait until at most ``MOST_IN_FLIGHT`` are unfinished."""
        if not self._cuda:
            yield
            return
        began, ended = self._idle_events.pop() if self._idle_events else _events()
        began.record()
        yield
        ended.record()
        self._in_flight.append((began, ended))
        if len(self._in_flight) > MOST_IN_FLIGHT:
            began, ended = events = self._in_flight.popleft()
            ended.synchronize()
            self._busy_s += 0.001 * began.elapsed_time(ended)
            self._idle_events.append(events)

    def figures(self) -> dict[str, float]:
        """``busy``, the share of time spent in updates since the last call; ``memory_bytes`` reserved by this
        process; ``memory_free_bytes`` of the device. Empty on a CPU, whose load every report has.
        """
        if not self._cuda:
            return {}
        now_s, (then_s, busy_s) = time.monotonic(), self._looked_at
        if now_s - then_s > 0.1:
            self._busy = min(1.0, (self._busy_s - busy_s) / (now_s - then_s))
            self._looked_at = now_s, self._busy_s
        return {
            "busy": self._busy,
            "memory_bytes": cuda.memory_reserved(self.device),
            "memory_free_bytes": cuda.mem_get_info(self.device)[0],
        }


def _events() -> tuple[Any, Any]:
    began, ended = (cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
    return began, ended
