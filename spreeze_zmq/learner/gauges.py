"""The momentary figures of a learner's reports: the library's own, and those of an algorithm's loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Names that are the library's in every run, whether a learner of it reports such a figure or not.
OF_LIBRARY = {
    *("learning_rate", "replay_ratio", "replay_size", "batch_size", "reward_divisor", "return_spread"),
    *("n_updates", "ent_coef"),  # names that loggers have for figures of the library: `broker.points`
}


def with_losses(own: Mapping[str, float], metrics: Mapping[str, Any], part: str) -> dict[str, float]:
    """The gauges of a report; waits for the device of the metrics.

    Args:
        own: the library's figures.
        metrics: the loss and its metrics, 0-d; one by a name of the library's is ``PART_loss_NAME``.
        part: ``"critic"`` or ``"policy"``, the half with that loss.
    """
    taken = OF_LIBRARY | own.keys()
    named = {name: f"{part}_loss_{name}" if name in taken else name for name in metrics}
    return {**own, **{named[name]: float(value) for name, value in metrics.items()}}
