"""Sums over priorities, from which rows are drawn in proportion, many at once."""

from __future__ import annotations

import torch

#: Children of a node: four levels hold a million rows, and a level costs the same few calls for all draws.
FAN_OUT = 32
#: A float64 for each leaf; all sums together are a thirtieth of that.
BYTES_PER_LEAF = 9


class SumTree:
    """A tree whose nodes hold the sums of their children; its leaves are the priorities of rows.

    Every sum is made anew from its children, so that rounding does not add up. Float64, since the total of a
    million priorities must still tell two neighbours apart.

    Args:
        size: rows; their priorities start at 0.
        device: where the tree lies.
    """

    def __init__(self, size: int, device: torch.device):
        self.levels: list[torch.Tensor] = []  # leaves first, each a multiple of FAN_OUT long but for the root
        while not self.levels or size > 1:
            padded = -(-size // FAN_OUT) * FAN_OUT
            self.levels.append(torch.zeros(padded, dtype=torch.float64, device=device))
            size = padded // FAN_OUT
        self.levels.append(torch.zeros(1, dtype=torch.float64, device=device))

    @property
    def leaves(self) -> torch.Tensor:
        """The priorities, with some zeros behind them."""
        return self.levels[0]

    @property
    def total(self) -> torch.Tensor:
        """The sum of all, ``[1]``."""
        return self.levels[-1]

    def set(self, index: torch.Tensor, priority: torch.Tensor) -> None:
        """Give the rows ``index`` ``[M]`` new priorities ``[M]``; of a row that comes twice, either."""
        self.levels[0][index] = priority.to(torch.float64)
        for children, parents in zip(self.levels, self.levels[1:], strict=False):
            index = index // FAN_OUT
            parents[index] = children.view(-1, FAN_OUT)[index].sum(1)

    def find(self, place: torch.Tensor) -> torch.Tensor:
        """The rows ``[B]`` in which ``place`` ``[B]`` float64, from 0 to the total, falls."""
        index = torch.zeros(place.shape, dtype=torch.int64, device=place.device)
        for level in reversed(self.levels[:-1]):
            sums = level.view(-1, FAN_OUT)[index].cumsum(1)
            child = (sums <= place.unsqueeze(1)).sum(1)
            # Rounding may leave a place at the very end; the last child that is not empty takes it.
            last = (sums < sums[:, -1:]).sum(1)
            child = torch.minimum(child, last)
            before = torch.where(child > 0, sums.gather(1, (child - 1).clamp_(min=0).unsqueeze(1))[:, 0], 0.0)
            place = place - before
            index = index * FAN_OUT + child
        return index
