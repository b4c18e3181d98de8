"""The knee of a curve of rates: the batch size, or number of threads, beyond which more gains little.

Spreeze (arXiv 2312.06126) fits its batch size to the hardware in this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

#: The smallest size that reaches this share of the best rate is chosen. The tenth that is given up
#: buys more updates of the same samples, or cores for others: near the limit a doubling adds a few percent.
KNEE_SHARE = 0.9
#: The climb ends when this many larger sizes together do not raise the best rate by ``GROWTH``; a single one
#: may have been measured during a disturbance of the machine.
PATIENCE = 2
GROWTH = 1.05
#: Measurements of each size, apart in time. A disturbance only ever slows a size down, so the fastest counts.
TURNS = 6

Curve = Mapping[int, float]


def knee(curve: Curve) -> int:
    """The smallest size whose rate is at least ``KNEE_SHARE`` of the best.

    Args:
        curve: size -> rate, positive and finite, in any order; at least one.
    """
    assert curve, "an empty curve has no knee"
    assert all(0.0 < rate < math.inf for rate in curve.values()), curve
    enough = KNEE_SHARE * max(curve.values())
    return min(size for size, rate in curve.items() if rate >= enough)


def grows(curve: Curve) -> bool:
    """Whether larger sizes may still gain: the last ``PATIENCE`` ones did, or there are too few yet."""
    rates = [curve[size] for size in sorted(curve)]
    if len(rates) <= PATIENCE:
        return True
    return max(rates[-PATIENCE:]) >= GROWTH * max(rates[:-PATIENCE])


def doublings(first: int, last: int) -> Iterator[int]:
    """``first``, twice that, and so on, up to ``last``."""
    while first <= last:
        yield first
        first *= 2


def climb(
    sizes: Sequence[int], rate: Callable[[int], float], time_left: Callable[[], bool]
) -> tuple[dict[int, float], str]:
    """Measure growing sizes until the rate grows no more, each of them ``TURNS`` times.

    Args:
        sizes: the candidates, ascending; the first is measured in any case.
        rate: measures one size.
        time_left: whether there is time for another measurement.

    Returns:
        The best rate of each measured size, and why there are no larger ones: ``"flat"``, ``"time"`` or
        ``"last"``.
    """
    curve = {sizes[0]: rate(sizes[0])}
    for turn in range(TURNS):
        for size in curve if turn else ():
            if time_left():
                curve[size] = max(curve[size], rate(size))
        while len(curve) < len(sizes) and grows(curve) and time_left():
            size = sizes[len(curve)]
            curve[size] = rate(size)
    if len(curve) == len(sizes):
        return curve, "last"
    return curve, "time" if grows(curve) else "flat"
