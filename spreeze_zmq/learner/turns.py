"""The fixed order of rollouts in a run in order."""

from __future__ import annotations

from collections import deque

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.plan.roles import SAMPLER


class Turns:
    """Puts rollouts in a fixed order: the first of sampler-0, the first of sampler-1, ..., the second of
    sampler-0, and so on. The limits of collection bound the number of rollouts that wait here.
    """

    def __init__(self, num_samplers: int) -> None:
        self._waiting: dict[str, deque[Rollout]] = {f"{SAMPLER}-{i}": deque() for i in range(num_samplers)}
        self._incarnations: dict[str, int] = {}
        self._num_taken = 0

    @property
    def _queue(self) -> deque[Rollout]:
        return self._waiting[f"{SAMPLER}-{self._num_taken % len(self._waiting)}"]

    @property
    def ready(self) -> bool:
        """Whether the next rollout of the order has arrived; never where there are no samplers."""
        return bool(self._waiting and self._queue)

    @property
    def has_heard_all(self) -> bool:
        """Whether each sampler has sent a rollout."""
        return self._incarnations.keys() == self._waiting.keys()

    def put(self, rollout: Rollout) -> None:
        """Add a rollout.

        Raises:
            WireError: its sampler is not part of the order, or has been restarted.
        """
        if rollout.sampler not in self._waiting:
            raise WireError("misfit", f"{rollout.sampler} has no place in the fixed order")
        if self._incarnations.setdefault(rollout.sampler, rollout.incarnation) != rollout.incarnation:
            raise WireError("misfit", f"{rollout.sampler} has been restarted: the order of samples is lost")
        self._waiting[rollout.sampler].append(rollout)

    def next(self) -> Rollout:
        """Remove and return the next rollout of the order."""
        rollout = self._queue.popleft()
        self._num_taken += 1
        return rollout

    def left(self) -> list[Rollout]:
        """All rollouts that have not been taken."""
        return [rollout for queue in self._waiting.values() for rollout in queue]
