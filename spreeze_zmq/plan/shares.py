"""The shares of a batch that ``[data]`` has, and those that come to no transition of it."""

from __future__ import annotations

from collections.abc import Mapping

from spreeze_zmq.base.shares import rows_of_shares
from spreeze_zmq.plan.parts import DataPlan

#: Shares that add up to as much are the whole batch.
WHOLE = 1.0 - 1e-9


def shares_of(sources: Mapping[str, DataPlan]) -> dict[str, float]:
    """The share of each source that has one, by its name."""
    return {name: source.share for name, source in sources.items() if source.share is not None}


def come_to_nothing(sources: Mapping[str, DataPlan], batch_size: int) -> list[tuple[str, str, str]]:
    """The shares that come to no transition of a batch, or leave none to the run's own replay: the source,
    the problem and a hint of each.
    """
    shares, larger = shares_of(sources), "or write a larger algorithm.batch_size"
    rows = dict(zip(shares, rows_of_shares(batch_size, shares.values()), strict=True))
    if none := [name for name, number in rows.items() if not number]:
        problem = f"of a batch of {batch_size} is not one transition"
        return [(name, f"{shares[name]:g} {problem}", f"raise it, {larger}") for name in none]
    if shares and sum(rows.values()) == batch_size and sum(shares.values()) < WHOLE:
        problem = f"it leaves not one transition of a batch of {batch_size} to the run's own replay"
        return [(list(shares)[-1], problem, f"lower it, {larger}")]
    return []
