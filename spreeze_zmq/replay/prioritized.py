"""The replay that draws transitions with large errors more often (Schaul et al. 2015, arXiv 1511.05952)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.replay.batches import Batch
from spreeze_zmq.replay.replays import Replay, ReplaySettings
from spreeze_zmq.replay.saved_ring import Put, put_array

#: Added to each error, so that a transition without error can still be drawn.
LEAST_PRIORITY = 1e-6
#: Children of a node: four levels hold a million rows; a level costs a few calls for all draws together.
FAN_OUT = 32
#: The file of ``priority_alpha``, one float64: saved priorities are to this power.
ALPHA_FILE = "priority_alpha.npy"
#: A float64 per leaf, and its share of the sums above, which take a thirtieth of the leaves.
BYTES_PER_LEAF = 9


class SumTree:
    """A tree whose nodes hold the sums of their children; its leaves are the priorities of rows.

    Every sum is computed from its children, so that rounding errors do not add up. Float64, since the
    difference of two neighbours must not vanish in the total of a million priorities.

    Args:
        size: number of rows; their priorities start at 0.
        device: the device of the tree.
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
        """The priorities, padded with zeros."""
        return self.levels[0]

    @property
    def total(self) -> torch.Tensor:
        """The sum of all priorities, ``[1]``."""
        return self.levels[-1]

    def set(self, index: torch.Tensor, priority: torch.Tensor) -> None:
        """Set the priorities ``[M]`` of the rows ``index`` ``[M]``; a repeated row gets one of its values."""
        self.levels[0][index] = priority.to(torch.float64)
        for children, parents in zip(self.levels, self.levels[1:], strict=False):
            index = index // FAN_OUT
            parents[index] = children.view(-1, FAN_OUT)[index].sum(1)

    def fill(self, begin: int, priority: torch.Tensor) -> None:
        """Set the priorities ``[M]`` of the rows from ``begin`` on. However many they are, it needs no memory
        beside the tree.
        """
        end = begin + len(priority)
        self.levels[0][begin:end] = priority
        for children, parents in zip(self.levels, self.levels[1:], strict=False):
            begin, end = begin // FAN_OUT, -(-end // FAN_OUT)
            torch.sum(children[begin * FAN_OUT : end * FAN_OUT].view(-1, FAN_OUT), 1, out=parents[begin:end])

    def find(self, place: torch.Tensor) -> torch.Tensor:
        """The rows ``[B]`` at ``place`` ``[B]`` of the cumulative sum, float64 from 0 to the total."""
        index = torch.zeros(place.shape, dtype=torch.int64, device=place.device)
        for level in reversed(self.levels[:-1]):
            sums = level.view(-1, FAN_OUT)[index].cumsum(1)
            child = (sums <= place.unsqueeze(1)).sum(1)
            # Rounding can put a place at the very end: it belongs to the last child that is not empty.
            last = (sums < sums[:, -1:]).sum(1)
            child = torch.minimum(child, last)
            before = torch.where(child > 0, sums.gather(1, (child - 1).clamp_(min=0).unsqueeze(1))[:, 0], 0.0)
            place = place - before
            index = index * FAN_OUT + child
        return index


class PrioritizedReplay(Replay):
    """Draws row ``i`` with probability ``P(i) = p_i^alpha / sum p^alpha`` (equation 1).

    ``sample`` returns weights ``(N P(i))^-beta`` divided by the batch's largest weight. New transitions get
    the highest priority so far. Nothing waits for the device. Arguments as for ``Replay``.
    """

    prioritized = True
    bytes_beside = BYTES_PER_LEAF

    def __init__(
        self,
        env: EnvironmentSpec,
        options: ReplaySettings,
        device: torch.device | str = "cpu",
        seed: int = 0,
        more: Sequence[str] = (),
    ):
        super().__init__(env, options, device, seed, more)
        self.alpha, self.beta = options.priority_alpha, options.priority_beta
        self.tree = SumTree(self.ring.capacity, self.ring.device)
        self._highest = torch.ones((), dtype=torch.float64, device=self.ring.device)
        self._drawn = torch.empty(0, dtype=torch.int64, device=self.ring.device)
        self._weight = torch.empty(0, device=self.ring.device)

    def restate(self, options: ReplaySettings) -> None:
        """Correct the bias of the next draws by another ``priority_beta``."""
        self.beta = options.priority_beta

    def add(self, rollout: Rollout) -> None:
        """Store a rollout's transitions with the highest priority so far."""
        ring = self.ring
        first, before = ring.first, ring.num_added
        super().add(rollout)
        oldest = ring.num_added - ring.capacity
        gone, new = max(first, oldest), max(before, oldest)
        self._fill(gone, torch.zeros_like(self._highest).expand(ring.first - gone))
        self._fill(new, self._highest.pow(self.alpha).expand(ring.num_added - new))

    def _fill(self, first: int, priority: torch.Tensor) -> None:
        """Set the priorities ``[M]`` of the transitions from number ``first`` on, which are in the table."""
        begin = first % self.ring.capacity
        split = self.ring.capacity - begin  # the rows after that are at the table's start
        for to, part in ((begin, priority[:split]), (0, priority[split:])):
            if len(part):
                self.tree.fill(to, part)

    def sample(self, batch_size: int) -> Batch:
        """``batch_size`` transitions drawn by priority, with replacement; valid until the next call."""
        place = self.ring.uniform(batch_size) * self.tree.total
        self._drawn = self.tree.find(place)
        share = self.tree.leaves[self._drawn] / self.tree.total
        weight = (share * len(self)).pow_(-self.beta)
        batch = self._batch(self.ring.take(self._drawn))
        if self._weight.shape != weight.shape:
            self._weight = torch.empty_like(weight, dtype=torch.float32)
        return replace(batch, weight=self._weight.copy_(weight / weight.amax()))

    def prioritize(self, errors: torch.Tensor) -> None:
        """Set the priorities of the last batch from its errors ``[B]``, of either sign. One that is not
        finite counts as the highest so far: every sum of the tree would be lost with it.
        """
        priority = errors.to(torch.float64).abs() + LEAST_PRIORITY
        priority = torch.where(priority.isfinite(), priority, self._highest)
        self._highest = torch.maximum(self._highest, priority.amax())
        self.tree.set(self._drawn, priority.pow(self.alpha))

    def keep_in(self, descriptor: int) -> None:
        """As for every replay. Priorities are not kept: all recovered transitions get the same."""
        super().keep_in(descriptor)
        self.forget_errors()

    def forget_errors(self) -> None:
        """Give all transitions the priority of new ones."""
        self._highest = torch.ones_like(self._highest)
        self._fill(self.ring.first, self._highest.expand(len(self.ring)))

    def save(self, put: Put) -> None:
        """As every replay, with the priorities in a file of their own, and the power that they are of."""
        super().save(put)
        leaves = torch.cat((self._highest.view(1), self.tree.leaves[: self.ring.num_stored]))
        put_array(put, "priorities.npy", leaves.cpu().numpy())
        put_array(put, ALPHA_FILE, np.array([self.alpha]))

    def load(self, folder: Path | str) -> None:
        """Continue from ``save``, with priorities of this run's ``priority_alpha``; of one that was 0 no
        errors are known. Raises CheckpointError.
        """
        super().load(folder)
        path, alpha_path = Path(folder) / "priorities.npy", Path(folder) / ALPHA_FILE
        try:
            saved = np.load(path, allow_pickle=False)
            # An earlier release did not save it: then it is taken to be as it was.
            alpha = float(*np.load(alpha_path, allow_pickle=False)) if alpha_path.exists() else self.alpha
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"the priorities in {path} cannot be read: {error}; resume with prioritized = false, or "
                "without the replay"
            ) from error
        ring = self.ring
        wrong = saved.shape != (1 + ring.num_loaded,) or saved.dtype != np.float64
        leaves = np.roll(saved[1:], -(ring.first + ring.renumbered))[: len(ring)]  # the oldest first
        if wrong or not (saved[0] > 0 and (leaves > 0).all()):
            raise CheckpointError(f"{path} does not hold {len(self)} priorities above 0")
        self._highest = torch.tensor(saved[0], device=ring.device)
        if alpha == self.alpha:
            self._fill(ring.first, torch.from_numpy(leaves).to(ring.device))
        elif alpha > 0.0:
            self._fill(ring.first, torch.from_numpy(leaves ** (self.alpha / alpha)).to(ring.device))
        else:
            self.forget_errors()
