"""What the same half of several groups has in common: one vector that can be sent, averaged and shifted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.learner_networks import LearnerNetworks


class Snapshot(NamedTuple):
    """A shared model at one moment, or the difference of two.

    Attributes:
        parameters: ``[P]``, of the networks.
        statistics: sums over observations and returns, float64 ``[S]``; empty where none are kept.
    """

    parameters: NDArray[np.float32]
    statistics: NDArray[np.float64]

    def since(self, other: Snapshot) -> Snapshot:
        """What has to be added to ``other`` for this one."""
        return Snapshot(self.parameters - other.parameters, self.statistics - other.statistics)

    def moved(self, by: Snapshot) -> Snapshot:
        """The sum of both."""
        return Snapshot(self.parameters + by.parameters, self.statistics + by.statistics)


class Statistics(Protocol):
    """What is known of a set of numbers by sums, so that those of several sets add up."""

    def sums(self) -> NDArray[np.float64]:
        """All sums."""

    def adopt(self, sums: NDArray[np.float64]) -> None:
        """Continue from sums."""


class SharedModel:
    """The networks of one half, changed in place: recorded updates and native layers stay valid.

    Args:
        networks: of the half.
        statistics: that are pooled.
        moves_targets: whether the half changes the targets.

    Attributes:
        layout: names the sizes and order of its numbers; those of equal layouts can be averaged.
        num_stepped: how many numbers, the first ones, the optimiser moves; buffers and targets follow.
    """

    def __init__(
        self, networks: LearnerNetworks, statistics: Sequence[Statistics], *, moves_targets: bool
    ) -> None:
        targets = [networks.targets.flat] if moves_targets else []
        self._parts, self._statistics = [networks.own.flat, *targets], statistics
        self.num_stepped = networks.own.trained.numel()
        shapes = [
            (name, place, tuple(tensor.shape))
            for name, module in networks.modules.items()
            for place, tensor in module.state_dict().items()
        ]
        sizes = [part.numel() for part in self._parts], [kept.sums().size for kept in statistics]
        self.layout = hashlib.sha256(repr((shapes, sizes)).encode()).hexdigest()[:16]

    @torch.no_grad()
    def snapshot(self) -> Snapshot:
        """A copy on the host; waits for the device."""
        parameters = torch.cat([part.flatten() for part in self._parts]).cpu().numpy().copy()
        sums = [kept.sums() for kept in self._statistics]
        return Snapshot(parameters, np.concatenate([np.empty(0), *sums]))

    @torch.no_grad()
    def shift(self, by: Snapshot) -> None:
        """Add a difference of two snapshots; the next publication puts new statistics into use."""
        moved = torch.from_numpy(by.parameters).to(self._parts[0].device)
        begin = 0
        for part in self._parts:
            part.add_(moved[begin : begin + part.numel()].view(part.shape))
            begin += part.numel()
        begin = 0
        for kept in self._statistics:
            before = kept.sums()
            kept.adopt(before + by.statistics[begin : begin + before.size])
            begin += before.size

    @property
    def size(self) -> int:
        """P."""
        return sum(part.numel() for part in self._parts)
