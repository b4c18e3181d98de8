"""What rewards are divided by, so that returns have a known size whatever the task pays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout

#: Returns are counted by their size: steps for each factor of two, and the least and greatest power of two.
STEPS, LEAST, GREATEST = 16, -40, 60
#: Limit of rewards that are divided by a deviation, in both directions, and the share of the mean return up
#: to which a deviation is rounding.
CLIP, ROUNDING = 10.0, 1e-6


class RunningReturns:
    """The discounted return that each environment has collected so far.

    Args:
        gamma: discount of one step.
        past_truncation: whether it goes on where an episode is cut, as values do that bootstrap there; an
            episode that ends always begins again at 0.
    """

    def __init__(self, gamma: float, *, past_truncation: bool) -> None:
        self._gamma, self._past_truncation = gamma, past_truncation
        self._running: dict[str, NDArray[np.float64]] = {}
        self._before: dict[str, NDArray[np.float64]] = {}

    def of(self, rollout: Rollout) -> NDArray[np.float64]:
        """The running return after each step of a rollout, ``[T, N]``."""
        assert rollout.reward is not None
        assert rollout.terminated is not None
        assert rollout.truncated is not None
        stream = f"{rollout.sampler}/{rollout.incarnation}"
        if stream not in self._running:  # of the life before, rollouts may still come
            for old in [name for name in self._running if name.rpartition("/")[0] == rollout.sampler][:-1]:
                del self._running[old]
        running = self._running.get(stream, self._before.pop(rollout.sampler, None))
        if running is None or running.shape != rollout.reward.shape[1:]:
            running = np.zeros(rollout.num_envs)
        returns = np.empty(rollout.reward.shape)
        for t, reward in enumerate(rollout.reward):
            running = running * self._gamma + reward
            returns[t] = running
            ended = rollout.terminated[t]
            if not self._past_truncation:
                ended = ended | rollout.truncated[t]
            running = np.where(ended, 0.0, running)
        self._running[stream] = running
        return returns

    def state(self) -> dict[str, torch.Tensor]:
        """Sampler -> the running returns of its newest life, or of the run before where it has had none."""
        newest = self._before | {stream.rpartition("/")[0]: each for stream, each in self._running.items()}
        return {sampler: torch.from_numpy(running.copy()) for sampler, running in sorted(newest.items())}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state`: the episodes of each sampler go on."""
        self._before = {sampler: running.numpy().copy() for sampler, running in state.items()}


class RewardScale:
    """Divides rewards by the standard deviation of the running discounted return and cuts them off at
    ``CLIP``, as VecNormalize does.

    The statistics include a rollout before its rewards are divided. Each environment's running return is
    reset to 0 at the end of an episode. Returns that are all equal, but for rounding, have no deviation yet:
    their size stands for it.

    Args:
        gamma: discount of one step.
    """

    def __init__(self, gamma: float) -> None:
        self._returns = RunningReturns(gamma, past_truncation=False)
        self.count, self.mean, self.squares = 0.0, 0.0, 0.0

    def __call__(self, rollout: Rollout) -> NDArray[np.float32]:
        """The rewards ``[T, N]`` of a rollout, divided."""
        assert rollout.reward is not None
        self._add(self._returns.of(rollout))
        deviation, size = np.sqrt(self.squares / self.count), abs(self.mean)
        if deviation <= ROUNDING * size:
            deviation = size or 1.0
        divided: NDArray[np.float32] = np.clip(rollout.reward / deviation, -CLIP, CLIP).astype(np.float32)
        return divided

    def _add(self, returns: NDArray[np.float64]) -> None:
        count, mean = returns.size, float(returns.mean())
        total, distance = self.count + count, mean - self.mean
        self.squares += float(np.square(returns - mean).sum()) + distance**2 * self.count * count / total
        self.mean += distance * count / total
        self.count = total

    def sums(self) -> NDArray[np.float64]:
        """Number, sum and sum of squares of all running returns: those of several sets add up."""
        return np.array([self.count, self.count * self.mean, self.squares + self.count * self.mean**2])

    def adopt(self, sums: NDArray[np.float64]) -> None:
        """Continue from :meth:`sums`."""
        self.count, total, squares = map(float, sums)
        self.mean = total / max(self.count, 1.0)
        self.squares = max(squares - self.count * self.mean**2, 0.0)

    def state_dict(self) -> dict[str, float]:
        """The statistics, without the running returns: after a resume the samplers start new episodes."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from ``state_dict()``."""
        self.count, self.mean, self.squares = state["count"], state["mean"], state["squares"]

    def running(self) -> dict[str, torch.Tensor]:
        """The running returns, for a run whose samplers go on in their episodes."""
        return self._returns.state()

    def go_on(self, running: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`running`."""
        self._returns.restore(running)


class ReturnScale:
    """Says what rewards are divided by, so that the largest discounted return so far has a size that suits
    the critics (Lee et al. 2025, arXiv 2502.15280: 5). This is half of the rule there, which divides by the
    deviation of the returns where that is more: rewards are larger here where the deviation exceeds a fifth
    of the largest return.

    The running returns are counted by the logarithm of their size, so that what several sets of environments
    have seen adds up, and the divisor moves in steps of 4 %.

    Args:
        gamma: discount of one step.
        largest: that size.

    Attributes:
        counts: running returns by size, after rewards other than 0, ``[STEPS * (GREATEST - LEAST)]``.
        divisor: of rewards; 1 until a return differs from 0.
        spread: how many times as large as the median return the largest is, of those that differ from 0.
    """

    def __init__(self, gamma: float, largest: float) -> None:
        # With a gamma of 1 the sum over all episodes has no bound; values are those of one episode then.
        self._returns, self._largest = RunningReturns(gamma, past_truncation=gamma < 1.0), largest
        self.keep_in(np.zeros(STEPS * (GREATEST - LEAST)))

    def keep_in(self, counts: NDArray[np.float64]) -> None:
        """Go on from these counts, and hold them there."""
        self.counts = counts
        self.adopt(counts)

    def add(self, rollout: Rollout) -> None:
        """Count the returns of a rollout after each reward; between rewards they only fade."""
        self.count(np.abs(self._returns.of(rollout)[rollout.reward != 0.0]))

    def count(self, sizes: NDArray[np.float64]) -> None:
        """Count returns of these sizes ``[K]``."""
        steps = np.floor(STEPS * (np.log2(sizes[sizes > 0.0]) - LEAST)).astype(np.intp)
        last = len(self.counts) - 1
        self.adopt(self.counts + np.bincount(steps.clip(0, last), minlength=last + 1))

    def sums(self) -> NDArray[np.float64]:
        """A copy of the counts."""
        return self.counts.copy()

    def adopt(self, sums: NDArray[np.float64]) -> None:
        """Continue from :meth:`sums`."""
        self.counts[:] = sums
        self.divisor = self.spread = 1.0
        if (total := sums.sum()) > 0.0:
            most, middle = np.flatnonzero(sums)[-1], np.searchsorted(sums.cumsum(), total / 2.0)
            self.divisor = float(2.0 ** ((most + 1) / STEPS + LEAST) / self._largest)
            self.spread = float(2.0 ** ((most - middle) / STEPS))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The counts, without the running returns: after a resume the samplers start new episodes."""
        return {"counts": torch.from_numpy(self.sums())}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state_dict`, or where what outlived the process before has counted further."""
        self.adopt(np.maximum(self.counts, state["counts"].numpy()))

    def running(self) -> dict[str, torch.Tensor]:
        """The running returns, for a run whose samplers go on in their episodes."""
        return self._returns.state()

    def go_on(self, running: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`running`."""
        self._returns.restore(running)
