"""Observations that are flattened from images of uint8 and other numbers, as rows of bytes: so rollouts carry
them and replays keep them, a byte for each pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout, odd_number
from spreeze_zmq.envs.spec import EnvironmentSpec

#: The arrays of a rollout that hold observations.
OBSERVATIONS = tuple(name for name, form in ARRAY_FIELDS.items() if form.entry == "obs")


@dataclass(frozen=True)
class Packing:
    """An observation of ``size`` float32 as a row of bytes: first its numbers as they are, then a byte for
    each pixel, then what fills the row to a multiple of 4. PROTOCOL.md says the same under ``rollout``.

    Attributes:
        size: of an observation.
        pixels: where its pixels are; in order, and not empty.
    """

    size: int
    pixels: tuple[slice, ...]

    @classmethod
    def of(cls, env: EnvironmentSpec) -> Packing | None:
        """That of an environment's observations; None where nothing would be gained."""
        spans = env.spans_of("pixels") if env.obs_dtype == "float32" else ()
        return cls(env.obs_shape[0], spans) if spans else None

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

    def odd_number(self, obs: NDArray[Any]) -> str:
        """As :func:`odd_number` of observations in either form, with the place in a flat one."""
        if obs.dtype == np.uint8 and not odd_number(self.numbers_of(obs)):
            return ""
        return odd_number(self.flat(obs))

    def numbers_of(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The numbers of rows ``[..., width]``: ``[..., num_numbers]``, a view."""
        return rows[..., : 4 * self.num_numbers].view(np.float32)

    def pack(self, obs: NDArray[Any]) -> NDArray[np.uint8]:
        """``[..., width]`` of observations ``[..., size]``, whose pixels are some; rows stay as they are."""
        if obs.dtype == np.uint8:
            return obs
        rows = np.empty((*obs.shape[:-1], self.width), np.uint8)
        numbers, end = self.numbers_of(rows), 0
        for span in self.numbers:
            begin, end = end, end + span.stop - span.start
            numbers[..., begin:end] = obs[..., span]
        end = 4 * self.num_numbers
        for span in self.pixels:
            begin, end = end, end + span.stop - span.start
            rows[..., begin:end] = obs[..., span]
        rows[..., end:] = 0
        return rows

    def unpack(self, rows: Any, numbers: Any, out: Any) -> None:
        """Write ``rows`` ``[..., width]``, whose ``numbers`` are a view of them, as observations to ``out``
        ``[..., size]``: arrays, or tensors of one device.
        """
        end = 0
        for span in self.numbers:
            begin, end = end, end + span.stop - span.start
            out[..., span] = numbers[..., begin:end]
        end = 4 * self.num_numbers
        for span in self.pixels:
            begin, end = end, end + span.stop - span.start
            out[..., span] = rows[..., begin:end]

    def flat(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """``[..., size]`` of rows ``[..., width]``; observations stay as they are."""
        if obs.dtype != np.uint8:
            return obs
        out = np.empty((*obs.shape[:-1], self.size), np.float32)
        self.unpack(obs, self.numbers_of(obs), out)
        return out


def sent(env: EnvironmentSpec) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one observation as samplers send it."""
    packing = Packing.of(env)
    return (tuple(env.obs_shape), env.obs_dtype) if packing is None else ((packing.width,), "uint8")


def flat(rollout: Rollout, packing: Packing | None) -> Rollout:
    """A rollout with observations as the environment's spec says, whether they came packed or not."""
    return rollout if packing is None else _changed(rollout, packing.flat)


def packed(rollout: Rollout, packing: Packing | None) -> Rollout:
    """A rollout with observations as samplers send them."""
    return rollout if packing is None else _changed(rollout, packing.pack)


def _changed(rollout: Rollout, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Rollout:
    changed: dict[str, Any] = {name: change(array) for name, array in rollout.arrays(OBSERVATIONS).items()}
    return replace(rollout, **changed)
