"""Batches of several replays: of each the same share, as demonstrations and the run's own transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any

import torch

from spreeze_zmq.replay.replays import Batch, ObservationReplay, Replay

#: What a replay's ``sample`` gives.
Drawn = Batch | torch.Tensor | Mapping[str, torch.Tensor]


class Mixture:
    """Draws each batch from several replays (RLPD, Ball et al. 2023, arXiv 2302.02948: half from each).

    Args:
        own: gives the rest of each batch; may be empty where there is none.
        others: replays with the share of each batch that is drawn from them; together at most 1.
    """

    def __init__(
        self, own: Replay | ObservationReplay, others: Sequence[tuple[float, Replay | ObservationReplay]]
    ) -> None:
        self._own, self._others = own, others

    def sizes(self, batch_size: int) -> list[int]:
        """Rows of a batch that are drawn from each of the others; they add up to the nearest whole number."""
        ends = [0, *(round(batch_size * share) for share in accumulate(share for share, _ in self._others))]
        return [last - first for first, last in pairwise(ends)]

    def sample(self, batch_size: int) -> Drawn:
        """A batch, first the rows of the others in their order, then those of its own."""
        sizes = self.sizes(batch_size)
        replays = [*(replay for _, replay in self._others), self._own]
        drawn = [
            replay.sample(size)
            for replay, size in zip(replays, [*sizes, batch_size - sum(sizes)], strict=True)
            if size
        ]
        return drawn[0] if len(drawn) == 1 else _joined(drawn)


def _joined(drawn: Sequence[Any]) -> Drawn:
    """One batch of the rows of several."""
    first = drawn[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([*drawn])
    if isinstance(first, Mapping):
        return {name: torch.cat([each[name] for each in drawn]) for name in first}
    columns = {each.name: [getattr(part, each.name) for part in drawn] for each in fields(first)}
    joined = {name: None if parts[0] is None else torch.cat(parts) for name, parts in columns.items()}
    made: Batch = type(first)(**joined)
    return made
