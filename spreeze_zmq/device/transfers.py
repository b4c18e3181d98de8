"""Copies between host and device beside the work that goes on there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

#: Much of it is missing in its stubs.
cuda: Any = torch.cuda

#: Buffers of a staging area: as many copies may be under way before a further one waits for the first.
NUM_SLOTS = 4


class Staging:
    """Host memory from which a device copies by itself; on a CPU, plain memory.

    Args:
        device: where the copies go.
    """

    def __init__(self, device: torch.device):
        self._pinned = device.type == "cuda"
        self._slots: list[torch.Tensor] = [torch.empty(0, dtype=torch.uint8)] * NUM_SLOTS
        self._events: list[Any] = []
        if self._pinned:
            self._events = [cuda.Event(blocking=True) for _ in range(NUM_SLOTS)]
        self._next = 0

    def rows(self, count: int, width: int, dtype: str) -> torch.Tensor:
        """An uninitialised ``[count, width]`` on the host, to be filled and copied before ``copied``."""
        if not self._pinned:
            return torch.empty(count, width, dtype=getattr(torch, dtype))
        self._events[self._next].synchronize()  # at once, unless all slots are under way
        size = count * width * np.dtype(dtype).itemsize
        if self._slots[self._next].numel() < size:
            self._slots[self._next] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return self._slots[self._next][:size].view(getattr(torch, dtype)).view(count, width)

    def copied(self) -> None:
        """The copies from the rows given out last have been launched on the current stream."""
        if self._pinned:
            self._events[self._next].record()
            self._next = (self._next + 1) % NUM_SLOTS

    def load(self, target: torch.Tensor, array: NDArray[Any]) -> None:
        """Copy ``array`` into ``target`` of the same shape, in the current stream's turn."""
        if not self._pinned:
            target.copy_(torch.tensor(array))
            return
        rows = self.rows(1, array.size, array.dtype.name)
        rows.numpy()[0] = array.reshape(-1)
        target.copy_(rows.view(array.shape), non_blocking=True)
        self.copied()


class Ingestion:
    """Keeps writes to a table on a stream of their own, and apart from reads of it.

    No read sees a row that is half written, no write touches a row that is being read, and the host waits for
    neither.

    Args:
        device: where the table lies.
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
    """One flat float32 tensor at a time on its way to the host, as it was when the copy was begun.

    On the device it is copied once more, which takes no longer than a small kernel; from there it leaves on a
    stream of its own while updates go on changing the original.

    Args:
        device: where the tensors are.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._cuda = device.type == "cuda"
        self._copy = self._pinned = torch.empty(0)
        if self._cuda:
            self._stream = cuda.Stream(device)
            self._arrived = cuda.Event(blocking=True)

    def start(self, tensor: torch.Tensor) -> None:
        """Copy ``tensor`` ``[P]``; what was copied before must have been taken."""
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
        """Whether it has arrived; ``wait`` until it has."""
        if not self._cuda:
            return True
        if wait:
            self._arrived.synchronize()
        return bool(self._arrived.query())

    def array(self) -> NDArray[np.float32]:
        """A copy of one's own, ``[P]``: the pinned buffer takes the next."""
        flat: NDArray[np.float32] = self._pinned.numpy()
        return flat.copy() if self._cuda else flat
