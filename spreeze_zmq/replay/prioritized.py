"""The replay that draws what surprised the critics more often (Schaul et al. 2015, arXiv 1511.05952)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch

from spreeze_zmq.errors import CheckpointError
from spreeze_zmq.replay.replays import Batch, ObservationReplay, Replay, ReplaySizes, Spaces
from spreeze_zmq.replay.sum_tree import BYTES_PER_LEAF, SumTree
from spreeze_zmq.rollout import Rollout

#: Keeps what was learned perfectly from never being drawn again.
LEAST_PRIORITY = 1e-6


class PrioritizedOptions(ReplaySizes, Protocol):
    """The options of an algorithm that say how transitions are drawn."""

    @property
    def prioritized(self) -> bool:
        """Whether by their priority."""

    @property
    def priority_alpha(self) -> float:
        """0 is uniform, 1 in proportion to the error."""

    @property
    def priority_beta(self) -> float:
        """1 corrects the whole bias of the drawing, 0 none of it."""


class PrioritizedReplay(Replay):
    """Draws row ``i`` with probability ``P(i) = p_i^alpha / sum p^alpha`` (equation 1).

    ``sample`` gives weights ``(N P(i))^-beta``, divided by the batch's largest; what is new has the highest
    priority so far. Nothing waits for the device. Arguments as for ``Replay``.
    """

    prioritized = True
    bytes_beside = BYTES_PER_LEAF

    def __init__(self, *arguments: Any, alpha: float = 0.6, beta: float = 0.4, **named: Any):
        super().__init__(*arguments, **named)
        self.alpha, self.beta = alpha, beta
        self.tree = SumTree(self.ring.capacity, self.ring.device)
        self._highest = torch.ones((), dtype=torch.float64, device=self.ring.device)
        self._drawn = torch.empty(0, dtype=torch.int64, device=self.ring.device)
        self._weight = torch.empty(0, device=self.ring.device)

    @classmethod
    def for_environment(
        cls, env: Spaces, options: ReplaySizes, device: torch.device | str, seed: int
    ) -> Self:
        """The replay that an algorithm's options ask for in this environment."""
        made = super().for_environment(env, options, device, seed)
        made.alpha = getattr(options, "priority_alpha", made.alpha)
        made.beta = getattr(options, "priority_beta", made.beta)
        return made

    def add(self, rollout: Rollout) -> None:
        """Store a rollout's transitions, each to be drawn soon."""
        ring = self.ring
        first, before = ring.first, ring.num_added
        super().add(rollout)
        oldest = ring.num_added - ring.capacity
        gone = torch.arange(max(first, oldest), ring.first, device=ring.device)
        new = torch.arange(max(before, oldest), ring.num_added, device=ring.device)
        self.tree.set(gone % ring.capacity, torch.zeros_like(gone))
        self.tree.set(new % ring.capacity, self._highest.pow(self.alpha).expand(len(new)))

    def sample(self, batch_size: int) -> Batch:
        """In proportion to the priorities, with replacement; valid until the next call."""
        place = self.ring.uniform(batch_size) * self.tree.total
        self._drawn = self.tree.find(place)
        share = self.tree.leaves[self._drawn] / self.tree.total
        weight = (share * len(self)).pow_(-self.beta)
        batch = Batch(**self.ring.take(self._drawn))
        if self._weight.shape != weight.shape:
            self._weight = torch.empty_like(weight, dtype=torch.float32)
        return replace(batch, weight=self._weight.copy_(weight / weight.amax()))

    def prioritize(self, errors: torch.Tensor) -> None:
        """Set the priorities of the batch drawn last, from its errors ``[B]``."""
        priority = errors.to(torch.float64) + LEAST_PRIORITY
        self._highest = torch.maximum(self._highest, priority.amax())
        self.tree.set(self._drawn, priority.pow(self.alpha))

    def save(self, folder: Path | str) -> None:
        """Write everything under ``folder``, npy without pickle."""
        super().save(folder)
        leaves = torch.cat((self._highest.view(1), self.tree.leaves[: self.ring.num_stored]))
        np.save(Path(folder) / "priorities.npy", leaves.cpu().numpy(), allow_pickle=False)

    def load(self, folder: Path | str) -> None:
        """Go on from ``save``. Raises CheckpointError."""
        super().load(folder)
        path = Path(folder) / "priorities.npy"
        try:
            saved = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"the priorities in {path} cannot be read: {error}; resume with prioritized = false, or "
                "without the replay"
            ) from error
        ring = self.ring
        drawn = np.arange(ring.first, ring.num_added) % ring.capacity
        wrong = saved.shape != (1 + ring.num_stored,) or saved.dtype != np.float64
        if wrong or not (saved[0] > 0 and (saved[1:][drawn] > 0).all()):
            raise CheckpointError(f"{path} does not hold {len(self)} priorities above 0")
        leaves, rows = torch.from_numpy(saved).to(ring.device), torch.from_numpy(drawn).to(ring.device)
        self._highest = leaves[0].clone()
        self.tree.set(rows, leaves[1:][rows])


def replay_of(
    fields: Sequence[str], env: Spaces, options: PrioritizedOptions, device: torch.device | str, seed: int
) -> Replay | ObservationReplay:
    """The replay of a learner that asks for these rollout arrays: observations, or whole transitions."""
    if "action" not in fields:
        return ObservationReplay.for_environment(env, options, device, seed)
    return transition_replay(env, options, device, seed)


def transition_replay(
    env: Spaces, options: PrioritizedOptions, device: torch.device | str, seed: int
) -> Replay:
    """The replay of whole transitions that an algorithm's options ask for."""
    kind = PrioritizedReplay if options.prioritized else Replay
    return kind.for_environment(env, options, device, seed)
