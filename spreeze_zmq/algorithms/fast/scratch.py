"""Buffers that are kept from one update to the next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

ViewT = TypeVar("ViewT")
#: Numbers of rows that memory stays laid out for: batches of some sizes, blocks of them, and their rests.
LAYOUTS_KEPT = 8
#: Of a ``ViewOf``: what an update asks for, with the rows of a block and with the rest of a batch.
VIEWS_KEPT = 8


class Scratch:
    """A buffer that grows to the largest shape that was asked for and is then kept.

    A fresh 256 KB tensor at each call would be mapped and unmapped by the C library, page faults included.
    Users whose contents are never needed at once may share one: what was used last is still in the cache.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._buffer = torch.empty(0, dtype=dtype, device=device)
        self._views: dict[tuple[int, ...], torch.Tensor] = {}

    def __call__(self, *shape: int) -> torch.Tensor:
        """An uninitialised tensor of ``shape``, at the same place in memory whatever the shape."""
        view = self._views.get(shape)
        return self._view(shape) if view is None else view

    def _view(self, shape: tuple[int, ...]) -> torch.Tensor:
        size = math.prod(shape)
        if size > self._buffer.numel():
            self._buffer = self._buffer.new_empty(size)
            self._views.clear()
        self._views[shape] = self._buffer[:size].view(shape)
        return self._views[shape]


class Spares:
    """Two buffers that are given out in turn: each layer reads one and writes the other."""

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._turn = itertools.cycle((Scratch(dtype, device), Scratch(dtype, device)))

    def __call__(self, *shape: int) -> torch.Tensor:
        """An uninitialised tensor of ``shape``, not in the place of the one that was given out last."""
        return next(self._turn)(*shape)


def turned(buffer: Callable[..., torch.Tensor], *shape: int) -> torch.Tensor:
    """A tensor of ``shape`` ``[E, B, size]`` that lies as ``[E, size, B]`` in memory."""
    networks, rows, size = shape
    return buffer(networks, size, rows).transpose(1, 2)


class ViewOf(Generic[ViewT]):
    """A view of a tensor, made once for each tensor object among the last few that were given.

    Buffers come back as the same objects at each update; every view of one that is saved is a microsecond or
    more of it, on a core whose caches the products have just swept.
    """

    def __init__(self, view: Callable[[torch.Tensor], ViewT]):
        self._view = view
        self._kept: dict[int, tuple[torch.Tensor, ViewT]] = {}

    def __call__(self, tensor: torch.Tensor) -> ViewT:
        """What ``view`` makes of it."""
        kept = self._kept.get(id(tensor))
        if kept is None:
            if len(self._kept) == VIEWS_KEPT:
                self._kept.clear()
            # The tensor is kept too: no other can get its id.
            kept = self._kept[id(tensor)] = (tensor, self._view(tensor))
        return kept[1]


class Numbers:
    """Python's numbers as 0-d float32 tensors, each made once.

    An operation on the CPU that is given a number makes a tensor, fills it and converts it: five calls inside
    torch where the operation itself is one.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._kept: dict[float, torch.Tensor] = {}

    def __call__(self, number: float) -> torch.Tensor:
        """The tensor of it."""
        kept = self._kept.get(number)
        if kept is None:
            kept = self._kept[number] = torch.tensor(number, dtype=torch.float32, device=self._device)
        return kept
