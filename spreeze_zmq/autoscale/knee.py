"""Where a curve of rates stops growing: the batch, or the number of threads, beyond which more gains little.

Spreeze (arXiv 2312.06126) fits its batch size to the hardware in this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

#: The smallest size that reaches this share of the best rate is the right one. The tenth that is given up
#: buys more updates of the same samples, or cores for others: near the limit a doubling adds a few percent.
KNEE_SHARE = 0.9
#: Larger sizes that must raise the best rate by ``GROWTH`` together, or the climb ends. A single one may have
#: met a disturbance of the machine.
PATIENCE = 2
GROWTH = 1.05
#: Turns of each size, apart in time: what disturbs the machine for a moment spoils one of them. Since others
#: only ever take time away, the fastest turn says most of the machine.
TURNS = 6

Curve = Mapping[int, float]


def knee(curve: Curve, share: float = KNEE_SHARE) -> int:
    """The smallest size whose rate is at least ``share`` of the best.

    Args:
        curve: size -> rate, positive and finite, in any order; at least one.
        share: above 0, at most 1.
    """
    assert curve, "a curve of nothing has no knee"
    assert all(0.0 < rate < math.inf for rate in curve.values()), curve
    enough = share * max(curve.values())
    return min(size for size, rate in curve.items() if rate >= enough)


def grows(curve: Curve) -> bool:
    """Whether a larger size may still gain: the last ``PATIENCE`` ones did, or are too few to say."""
    rates = [curve[size] for size in sorted(curve)]
    if len(rates) <= PATIENCE:
        return True
    return max(rates[-PATIENCE:]) >= GROWTH * max(rates[:-PATIENCE])


def doublings(first: int, last: int) -> Iterator[int]:
    """``first``, twice that, and so on, none above ``last``."""
    while first <= last:
        yield first
        first *= 2


def climb(
    sizes: Sequence[int], rate: Callable[[int], float], time_left: Callable[[], bool]
) -> tuple[dict[int, float], str]:
    """Measure growing sizes until the rate grows no more, and each of them in ``TURNS`` turns.

    Args:
        sizes: those that may be, ascending; the first is measured in any case.
        rate: measures one size.
        time_left: whether there is time for another measurement.

    Returns:
        The best rate of each size that was measured, and why there are no larger ones: ``"flat"``, ``"time"``
        or ``"last"``.
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
