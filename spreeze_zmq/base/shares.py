"""How many rows of a batch each of several shares comes to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise


def rows_of_shares(size: int, shares: Iterable[float]) -> list[int]:
    """Rows of a batch of ``size`` for each share of it; they add up to the nearest whole number."""
    ends = [0, *(round(size * share) for share in accumulate(shares))]
    return [last - first for first, last in pairwise(ends)]
