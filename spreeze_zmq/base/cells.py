"""Thins a curve that grows for as long as a run does, evenly in time, however often it is thinned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def cells(times_s: Sequence[float], most: int) -> list[slice]:
    """The entries of a curve by cells of time, of which there are about a quarter to half of ``most``.

    A cell is a power of two of seconds wide and begins at a multiple of that: those of a later call are made
    of whole ones of an earlier call, so that the beginning is not thinned again and again. As ``bounded`` of
    the page has it.

    Args:
        times_s: when each entry was, finite, the newest last.
        most: entries from which on they are thinned.
    """
    span_s = times_s[-1] - times_s[0]
    apart_s = 2.0 ** math.ceil(math.log2(2 * span_s / most)) if span_s > 0 else math.inf
    places = [t_s // apart_s for t_s in times_s]
    starts = [index for index, place in enumerate(places) if not index or place != places[index - 1]]
    return [slice(begin, end) for begin, end in pairwise([*starts, len(places)])]
