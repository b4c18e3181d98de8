"""Observations that are flattened from images of uint8, choices of many options and other numbers, as rows of
bytes: so rollouts carry them and replays keep them, a byte for each pixel, a number for each choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout, odd_number
from spreeze_zmq.envs.spec import EnvironmentSpec

#: The arrays of a rollout that hold observations.
OBSERVATIONS = tuple(name for name, form in ARRAY_FIELDS.items() if form.entry == "obs")
#: The choices of a part are packed where they have this many options on average; with fewer, unpacking costs
#: more time than reading them flat.
LEAST_OPTIONS = 32


class Numbers(NamedTuple):
    """Consecutive numbers of an observation that are alike.

    Attributes:
        place: where they are in a flat observation.
        at: where they are among the numbers of a row.
        sizes: of packed choices, the options of each; empty for plain numbers.
    """

    place: slice
    at: slice
    sizes: tuple[int, ...]

    @property
    def firsts(self) -> NDArray[np.int64]:
        """Of packed choices, where the options of each begin within ``place``."""
        return np.cumsum(self.sizes, dtype=np.int64) - np.asarray(self.sizes, np.int64)

    @property
    def lasts(self) -> NDArray[np.int64]:
        """Of packed choices, the number of the last option of each."""
        return np.asarray(self.sizes) - 1

    def joined(self, place: slice) -> Numbers:
        """Together with the choice whose options follow."""
        sizes = (*self.sizes, place.stop - place.start)
        return Numbers(slice(self.place.start, place.stop), slice(self.at.start, self.at.stop + 1), sizes)


@dataclass(frozen=True)
class Packing:
    """An observation of ``size`` float32 as a row of bytes: first its numbers as they are, and of a packed
    choice the number of its option, then a byte for each pixel, then what fills the row to a multiple of 4.
    PROTOCOL.md says the same under ``rollout``.

    Attributes:
        size: of an observation.
        pixels: where its pixels are, image by image; in order.
        choices: where the options of each packed choice are; in order.
    """

    size: int
    pixels: tuple[slice, ...]
    choices: tuple[slice, ...] = ()

    @classmethod
    def of(cls, env: EnvironmentSpec) -> Packing | None:
        """That of an environment's observations; None where nothing would be gained."""
        if env.obs_dtype != "float32":
            return None
        pixels, choices = env.spans_of("pixels"), tuple(_wide_choices(env))
        return cls(env.obs_shape[0], pixels, choices) if pixels or choices else None

    @cached_property
    def stretches(self) -> tuple[Numbers, ...]:
        """All that is no pixel, in order."""
        found: list[Numbers] = []
        at = end = 0
        cuts = [*((span, False) for span in self.pixels), *((span, True) for span in self.choices)]
        cuts = [*sorted(cuts, key=lambda each: each[0].start), (slice(self.size, self.size), False)]
        for cut, is_choice in cuts:
            if end < cut.start:
                found.append(Numbers(slice(end, cut.start), slice(at, at + cut.start - end), ()))
                at = found[-1].at.stop
            if is_choice:
                follows = found and found[-1].sizes and found[-1].place.stop == cut.start
                before = found.pop() if follows else Numbers(slice(cut.start, cut.start), slice(at, at), ())
                found.append(before.joined(cut))
                at += 1
            end = cut.stop
        return tuple(found)

    @cached_property
    def num_numbers(self) -> int:
        """Numbers of a row."""
        return self.stretches[-1].at.stop if self.stretches else 0

    @cached_property
    def width(self) -> int:
        """Bytes of a row."""
        num_pixels: int = sum(span.stop - span.start for span in self.pixels)
        return -(-(4 * self.num_numbers + num_pixels) // 4) * 4

    def odd_entry(self, obs: NDArray[Any]) -> str:
        """The first pixel or packed choice that is none of ``obs`` ``[..., size]``, with its place; empty if
        all are.
        """
        for span in self.pixels:
            given = obs[..., span]
            with np.errstate(invalid="ignore"):
                odd = given != given.astype(np.uint8)
            if odd.any():
                return f"{_first(given, odd, range(span.start, span.stop))}, expected a pixel of 0 to 255"
        for span in self.choices:
            given = obs[..., span]
            odd = ((given != 0) & (given != 1)) | (given.sum(-1, keepdims=True) != 1)
            if odd.any():
                first = _first(given, odd, range(span.start, span.stop))
                return f"{first}, expected 1 for one of {given.shape[-1]} options and 0 for all others"
        return ""

    def odd_choice(self, obs: NDArray[Any]) -> str:
        """The first number of rows ``[..., width]`` that is of no option, with the place of its choice in a
        flat observation; empty if all are, and of what is flat.
        """
        for stretch in self.stretches if obs.dtype == np.uint8 else ():
            if stretch.sizes:
                given = self.numbers_of(obs)[..., stretch.at]
                odd = ~((given >= 0) & (given < stretch.sizes) & (given == np.floor(given)))
                if odd.any():
                    first = _first(given, odd, stretch.place.start + stretch.firsts)
                    return f"{first}, expected the number of an option, from 0"
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
        """``[..., width]`` of observations ``[..., size]``, whose pixels and choices are some; rows stay as
        they are.
        """
        if obs.dtype == np.uint8:
            return obs
        rows = np.empty((*obs.shape[:-1], self.width), np.uint8)
        numbers = self.numbers_of(rows)
        for place, at, sizes in self.stretches:
            numbers[..., at] = _options(obs[..., place], sizes) if sizes else obs[..., place]
        end = 4 * self.num_numbers
        for span in self.pixels:
            begin, end = end, end + span.stop - span.start
            rows[..., begin:end] = obs[..., span]
        rows[..., end:] = 0
        return rows

    def unpack(self, rows: Any, numbers: Any, out: Any, choose: Callable[[Any, Any, Numbers], None]) -> None:
        """Write ``rows`` ``[..., width]``, whose ``numbers`` are a view of them, as observations to ``out``
        ``[..., size]``: arrays, or tensors of one device, where ``choose`` does what :func:`choose` does to
        arrays.
        """
        for stretch in self.stretches:
            if stretch.sizes:
                choose(out[..., stretch.place], numbers[..., stretch.at], stretch)
            else:
                out[..., stretch.place] = numbers[..., stretch.at]
        end = 4 * self.num_numbers
        for span in self.pixels:
            begin, end = end, end + span.stop - span.start
            out[..., span] = rows[..., begin:end]

    def flat(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """``[..., size]`` of rows ``[..., width]``; observations stay as they are."""
        if obs.dtype != np.uint8:
            return obs
        out = np.empty((*obs.shape[:-1], self.size), np.float32)
        self.unpack(obs, self.numbers_of(obs), out, choose)
        return out


def choose(out: NDArray[Any], numbers: NDArray[Any], stretch: Numbers) -> None:
    """Write the choices of ``numbers`` ``[..., C]`` to ``out``, one-hot; a number that is of no option is
    taken for the nearest, or the first.
    """
    out[...] = 0
    with np.errstate(invalid="ignore"):
        chosen = numbers.astype(np.int64)
    places = np.clip(chosen, 0, stretch.lasts) + stretch.firsts
    np.put_along_axis(out, places, 1, -1)


def _options(obs: NDArray[Any], sizes: Sequence[int]) -> NDArray[np.int64]:
    """``[..., C]``: the option that each choice has in ``obs``, which are one-hot, one after the other."""
    if min(sizes) == max(sizes):
        chosen: NDArray[np.int64] = obs.reshape(*obs.shape[:-1], len(sizes), sizes[0]).argmax(-1)
        return chosen
    each = np.split(obs, np.cumsum(sizes)[:-1], -1)
    return np.stack([options.argmax(-1) for options in each], -1)


def _first(given: NDArray[Any], odd: NDArray[np.bool_], places: Sequence[int] | NDArray[np.int64]) -> str:
    """The first odd entry of ``given``, and where it is; ``places`` are those of its last axis."""
    *at, last = (int(i) for i in np.unravel_index(int(odd.argmax()), odd.shape))
    return f"{given[(*at, last)]:.6g} at {[*at, int(places[last])]}"


def _wide_choices(env: EnvironmentSpec) -> Iterator[slice]:
    """Where the options of each choice are whose part of the observation is worth to be packed."""
    parts = [part for part in env.obs_parts if part.get("sizes")]
    for span, part in zip(env.spans_of("sizes"), parts, strict=False):
        sizes = part["sizes"]
        if sum(sizes) >= LEAST_OPTIONS * len(sizes):
            ends = accumulate(sizes, initial=span.start)
            yield from (slice(*each) for each in pairwise(ends))


def odd_choice(rollout: Rollout, packing: Packing | None) -> str:
    """The first packed choice of a rollout that is none; empty if all are."""
    if packing is not None:
        for name, array in rollout.arrays(OBSERVATIONS).items():
            if odd := packing.odd_choice(array):
                return f"{name} holds {odd}"
    return ""


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
