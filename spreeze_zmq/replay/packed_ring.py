"""The table of a replay of observations that are flattened from images and other numbers: pixels are kept as
the bytes that they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.replay.ring import Column, Ring


@dataclass(frozen=True)
class Packing:
    """An observation of ``size`` float32 as a row of bytes: first its numbers as they are, then a byte for
    each pixel, then what fills the row to a multiple of 4.

    Attributes:
        size: of an observation.
        pixels: where its pixels are; in order, and not empty.
    """

    size: int
    pixels: tuple[slice, ...]

    @classmethod
    def of(cls, env: EnvironmentSpec) -> Packing | None:
        """That of an environment's observations; None where nothing would be gained."""
        return cls(env.obs_shape[0], env.pixel_spans) if env.pixel_spans else None

    @property
    def numbers(self) -> tuple[slice, ...]:
        """Where the others are."""
        ends = [0, *(end for span in self.pixels for end in (span.start, span.stop)), self.size]
        return tuple(slice(*each) for each in list(pairwise(ends))[::2] if each[0] < each[1])

    @property
    def num_numbers(self) -> int:
        """How many these are."""
        num: int = self.size - sum(span.stop - span.start for span in self.pixels)
        return num

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return -(-(4 * self.num_numbers + self.size - self.num_numbers) // 4) * 4

    def odd_pixel(self, obs: NDArray[Any]) -> str:
        """The first pixel of ``obs`` ``[..., size]`` that is none, with its place; empty if all are."""
        for span in self.pixels:
            given = obs[..., span]
            with np.errstate(invalid="ignore"):
                odd = given != given.astype(np.uint8)
            if odd.any():
                *at, place = (int(i) for i in np.unravel_index(int(odd.argmax()), odd.shape))
                found = f"{given[(*at, place)]:.6g} at {[*at, span.start + place]}"
                return f"{found}, expected a pixel of 0 to 255"
        return ""

    def pack(self, obs: NDArray[Any]) -> NDArray[np.uint8]:
        """``[..., width]`` of observations ``[..., size]``."""
        rows = np.zeros((*obs.shape[:-1], self.width), np.uint8)
        numbers, end = rows[..., : 4 * self.num_numbers].view(np.float32), 0
        for span in self.numbers:
            begin, end = end, end + span.stop - span.start
            numbers[..., begin:end] = obs[..., span]
        end = 4 * self.num_numbers
        for span in self.pixels:
            begin, end = end, end + span.stop - span.start
            rows[..., begin:end] = obs[..., span]
        return rows

    def unpack(self, rows: torch.Tensor, out: torch.Tensor) -> None:
        """Write rows ``[B, width]`` as observations to ``out`` ``[B, size]``, float32 of the same device."""
        numbers, end = rows[:, : 4 * self.num_numbers].view(torch.float32), 0
        for span in self.numbers:
            begin, end = end, end + span.stop - span.start
            out[:, span] = numbers[:, begin:end]
        end = 4 * self.num_numbers
        for span in self.pixels:
            begin, end = end, end + span.stop - span.start
            out[:, span] = rows[:, begin:end]


class PackedRing(Ring):
    """A table that keeps the observations of its rows packed, and gives them as they came.

    Args:
        packing: of the observations.
        capacity: rows.
        columns: the fields of a row; ``obs`` and, if there is one, ``next_obs`` are the observations.
        about: the rest of a ring's arguments.
    """

    def __init__(self, packing: Packing, capacity: int, columns: Sequence[Column], *about: Any) -> None:
        self._packing = packing
        self._names = [column.name for column in columns if column.name in ("obs", "next_obs")]
        self._whole = torch.empty(0)
        packed = {name: Column(name, "uint8", (packing.width,)) for name in self._names}
        super().__init__(capacity, [packed.get(column.name, column) for column in columns], *about)

    def unfit(self, rollout: Rollout) -> str:
        """Which pixel of a rollout is none; empty if all are."""
        for name in ("obs", "final_obs"):
            array = getattr(rollout, name)
            if array is not None and (odd := self._packing.odd_pixel(array)):
                return f"{name} holds {odd}"
        return ""

    def write(self, fields: Mapping[str, NDArray[Any]]) -> None:
        super().write({**fields, **{name: self._packing.pack(fields[name]) for name in self._names}})

    def take(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows ``index`` ``[B]``, observations ``[B, size]`` float32; valid until the next call."""
        packed, shape = super().take(index), (len(self._names), len(index), self._packing.size)
        if self._whole.shape != shape:
            self._whole = torch.empty(shape, device=self.device)
        for name, whole in zip(self._names, self._whole, strict=True):
            self._packing.unpack(packed[name], whole)
        return {**packed, **dict(zip(self._names, self._whole, strict=True))}

    def looked_up(self, name: str, places: NDArray[np.float64]) -> NDArray[Any]:
        """As of every ring, unpacked."""
        found = super().looked_up(name, places)
        if name not in self._names:
            return found
        whole = torch.empty(len(found), self._packing.size)
        self._packing.unpack(torch.from_numpy(found), whole)
        return np.asarray(whole.numpy())
