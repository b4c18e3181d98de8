"""The table of a replay of observations that are flattened from images, choices of many options and other
numbers: pixels are kept as the bytes that they were, choices as the number of their option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs.packed import Numbers, Packing
from spreeze_zmq.replay.ring import Column, Ring


class PackedRing(Ring):
    """A table that keeps the observations of its rows packed, and gives them as they came.

    Args:
        capacity: rows.
        packing: of the observations, which are the last axis of their columns.
        columns: the fields of a row; ``obs`` and, if there is one, ``next_obs`` are the observations.
        about: the rest of a ring's arguments.
    """

    def __init__(self, capacity: int, packing: Packing, columns: Sequence[Column], *about: Any) -> None:
        self._packing = packing
        self._names = [column.name for column in columns if column.name in ("obs", "next_obs")]
        self._whole = torch.empty(0)
        each = [
            Column(column.name, "uint8", (*column.shape[:-1], packing.width))
            if column.name in self._names
            else column
            for column in columns
        ]
        super().__init__(capacity, each, *about)
        self._options = {
            stretch.at.start: [
                torch.as_tensor(of_each, device=self.device)
                for of_each in (0 * stretch.lasts, stretch.lasts, stretch.firsts)
            ]
            for stretch in packing.stretches
            if stretch.sizes
        }

    def unfit(self, rollout: Rollout) -> str:
        """Which pixel or choice of a rollout is none; empty if all are, as of one that came packed."""
        for name in ("obs", "final_obs"):
            array = getattr(rollout, name)
            if array is not None and array.dtype != np.uint8 and (odd := self._packing.odd_entry(array)):
                return f"{name} holds {odd}"
        return ""

    def write(self, fields: Mapping[str, NDArray[Any]]) -> None:
        super().write({**fields, **{name: self._packing.pack(fields[name]) for name in self._names}})

    def take(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows ``index`` ``[B]``, observations ``[B, ..., size]`` float32; valid until the next call."""
        packed = super().take(index)
        shape = (len(self._names), *packed[self._names[0]].shape[:-1], self._packing.size)
        if self._whole.shape != shape:
            self._whole = torch.empty(shape, device=self.device)
        for name, whole in zip(self._names, self._whole, strict=True):
            rows = packed[name]
            numbers = rows[..., : 4 * self._packing.num_numbers].view(torch.float32)
            self._packing.unpack(rows, numbers, whole, self._choose)
        return {**packed, **dict(zip(self._names, self._whole, strict=True))}

    def looked_up(self, name: str, places: NDArray[np.float64]) -> NDArray[Any]:
        """As of every ring, unpacked."""
        found = super().looked_up(name, places)
        return self._packing.flat(found) if name in self._names else found

    def _choose(self, out: torch.Tensor, numbers: torch.Tensor, stretch: Numbers) -> None:
        """As :func:`spreeze_zmq.envs.packed.choose`."""
        none, lasts, firsts = self._options[stretch.at.start]
        out.zero_().scatter_(-1, torch.clamp(numbers.long(), none, lasts).add_(firsts), 1.0)
