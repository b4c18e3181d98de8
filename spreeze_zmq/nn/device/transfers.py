"""Copies between host and device that overlap with its computation, and the updates in flight there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

#: Any, because torch's stubs lack much of it.
cuda: Any = torch.cuda

#: Buffers of a staging area: copies that can be in flight before the next one waits for the first.
NUM_SLOTS = 4
#: Updates that may be launched but unfinished: enough to keep the device busy while the host receives
#: rollouts, and few enough for fresh published weights.
MOST_IN_FLIGHT = 8


class Staging:
    """Pinned host memory for asynchronous copies to a GPU; what goes to a CPU is written in its place.

    Args:
        device: target of the copies.
    """

    def __init__(self, device: torch.device):
        self._pinned = device.type == "cuda"
        self._slots: list[torch.Tensor] = [torch.empty(0, dtype=torch.uint8)] * NUM_SLOTS
        self._events: list[Any] = []
        if self._pinned:
            self._events = [cuda.Event(blocking=True) for _ in range(NUM_SLOTS)]
        self._next = 0

    @contextmanager
    def filling(self, target: torch.Tensor) -> Iterator[NDArray[Any]]:
        """Host memory of the shape of ``target``, uninitialised, to be filled inside; afterwards ``target``
        holds its contents, on a GPU in order of the current stream.
        """
        if not self._pinned:
            yield target.numpy()
            return
        slot, self._next = self._next, (self._next + 1) % NUM_SLOTS
        self._events[slot].synchronize()  # returns at once unless all slots are in flight
        if self._slots[slot].numel() < target.nbytes:
            self._slots[slot] = torch.empty(target.nbytes, dtype=torch.uint8, pin_memory=True)
        source = self._slots[slot][: target.nbytes].view(target.dtype).view(target.shape)
        yield source.numpy()
        target.copy_(source, non_blocking=True)
        self._events[slot].record()


class Ingestion:
    """Writes to a replay's table on a separate stream, ordered with its reads.

    No read sees a half-written row, no write changes a row being read, and the host waits for neither.

    Args:
        device: of the table.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._cuda = device.type == "cuda"
        if self._cuda:
            self._stream = cuda.Stream(device)
            self._written, self._read = cuda.Event(), cuda.Event()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Copies launched inside come after all reads so far, and before all later ones."""
        if not self._cuda:
            yield
            return
        self._stream.wait_event(self._read)
        with cuda.stream(self._stream):
            yield
            self._written.record()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Work launched inside comes after all writes so far, and before all later ones."""
        if not self._cuda:
            yield
            return
        cuda.current_stream(self._device).wait_event(self._written)
        yield
        self._read.record(cuda.current_stream(self._device))


class Download:
    """An asynchronous copy to the host of one flat float32 tensor, as it is at ``start``.

    ``start`` first copies it on the device, which takes as long as a small kernel. That copy moves to the
    host on a separate stream while updates change the original.

    Args:
        device: of the tensors.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._cuda = device.type == "cuda"
        self._copy = self._pinned = torch.empty(0)
        if self._cuda:
            self._stream = cuda.Stream(device)
            self._arrived = cuda.Event(blocking=True)

    def start(self, tensor: torch.Tensor) -> None:
        """Start to copy ``tensor`` ``[P]``; first take the previous copy by ``array``."""
        if not self._cuda:
            self._pinned = tensor.clone()
            return
        if self._copy.shape != tensor.shape:
            self._copy = torch.empty_like(tensor)
            self._pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._copy.copy_(tensor)
        self._stream.wait_stream(cuda.current_stream(self._device))
        with cuda.stream(self._stream):
            self._pinned.copy_(self._copy, non_blocking=True)
            self._arrived.record()

    def ready(self, *, wait: bool = False) -> bool:
        """Whether the copy has arrived; with ``wait``, blocks until it has."""
        if not self._cuda:
            return True
        if wait:
            self._arrived.synchronize()
        return bool(self._arrived.query())

    def array(self) -> NDArray[np.float32]:
        """The values ``[P]`` in new memory; the pinned buffer is reused."""
        flat: NDArray[np.float32] = self._pinned.numpy()
        return flat.copy() if self._cuda else flat


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
        self._first_s = self._last_s = 0.0  # when the first and the last update that have ended were seen

    def run(self, update: Callable[[], object]) -> None:
        """Call one update, and wait until at most ``MOST_IN_FLIGHT`` are unfinished."""
        if not self._cuda:
            update()
            return
        began, ended = self._idle_events.pop() if self._idle_events else _events()
        began.record()
        update()
        ended.record()
        self._in_flight.append((began, ended))
        if len(self._in_flight) > MOST_IN_FLIGHT:
            began, ended = events = self._in_flight.popleft()
            ended.synchronize()
            self._busy_s += 0.001 * began.elapsed_time(ended)
            self._last_s = time.monotonic()
            self._first_s = self._first_s or self._last_s
            self._idle_events.append(events)

    def figures(self) -> dict[str, float]:
        """``busy``, the share of time spent in updates since the last call, and ``busy_in_all`` since the
        first update; ``memory_bytes`` reserved by this process; ``memory_free_bytes`` of the device. Empty on
        a CPU, whose load every report has.
        """
        if not self._cuda:
            return {}
        now_s, (then_s, busy_s) = time.monotonic(), self._looked_at
        if now_s - then_s > 0.1:
            self._busy = min(1.0, (self._busy_s - busy_s) / (now_s - then_s))
            self._looked_at = now_s, self._busy_s
        return {
            "busy": self._busy,
            "busy_in_all": min(1.0, self._busy_s / max(self._last_s - self._first_s, self._busy_s, 1e-9)),
            "memory_bytes": cuda.memory_reserved(self.device),
            "memory_free_bytes": cuda.mem_get_info(self.device)[0],
        }


def _events() -> tuple[Any, Any]:
    began, ended = (cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
    return began, ended
