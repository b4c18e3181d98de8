"""The updates of a critic-learner: its own, or those that several take as one.

Both are begun and finished, so that the learner's story is one. Alone an update is done when it has begun.
Among several it takes place when all have begun theirs, and each serves its sockets until then.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from spreeze_zmq.algorithms.interface import Batch, CriticHalf
from spreeze_zmq.component.component import Component
from spreeze_zmq.learner.live_batch import LiveBatch
from spreeze_zmq.learner.publication import Cadence
from spreeze_zmq.learner.ranks import Ranks, checksum
from spreeze_zmq.run.checkpoint import Checkpoint

#: A wait for the others' gradients is no longer than this at once: meanwhile no socket is served.
SLICE_S = 0.005
#: Who leaves takes the last step with the others, if that takes no longer.
LAST_STEP_S = 1.0

log = logging.getLogger("spreeze")


@dataclass(frozen=True)
class Outcome:
    """What became of an update.

    Attributes:
        took_place: whether a step was taken; not, where somebody is to stop.
        received_by_others: transitions that the others have received since the last one.
    """

    took_place: bool
    received_by_others: int


class Updates(Protocol):
    """What a critic-learner needs of either."""

    @property
    def count(self) -> int:
        """Processes that take each update."""

    @property
    def waiting_for(self) -> str:
        """Who owes a part of the update that has begun; empty where none is under way."""

    @property
    def may_begin(self) -> bool:
        """Whether another may."""

    @property
    def batch_size(self) -> int:
        """Of the next one."""

    def join(self) -> None:
        """Meet the others."""

    def restore_point(self) -> Checkpoint | None:
        """What all go on from."""

    def receive(self, transitions: int) -> None:
        """Note what this process has received, for the others to hear of."""

    def attend(self, stopping: bool) -> None:
        """Look after the others; ``stopping``: tell them that this process trains no further."""

    def begin(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """The gradient of a batch; its metrics."""

    def finish(self) -> Outcome | None:
        """Take the step; None while somebody's part is missing."""

    def leave(self, finish: Callable[[], bool]) -> None:
        """Take the step that others may have taken already, and no further one."""


class OwnUpdates:
    """Updates of a learner that trains alone."""

    count, waiting_for, may_begin = 1, "", True

    def __init__(self, component: Component, half: CriticHalf, batch: LiveBatch) -> None:
        self._half, self._batch = half, batch
        self.restore_point = component.restore_point

    @property
    def batch_size(self) -> int:
        """What the broker wants, from now on."""
        return self._batch.wanted

    def join(self) -> None:
        """There is nobody to meet."""

    def receive(self, transitions: int) -> None:
        """There is nobody to tell."""

    def attend(self, stopping: bool) -> None:
        """There is nobody to look after."""

    def begin(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """The whole of it."""
        return self._half.update(batch)

    def finish(self) -> Outcome:
        """Nothing is missing."""
        return Outcome(took_place=True, received_by_others=0)

    def leave(self, finish: Callable[[], bool]) -> None:
        """Nothing is owed."""


class SharedUpdates:
    """Updates of one of several learners: an all-reduce of their gradients, and a step of each.

    Args:
        component: this process.
        half: has the gradient. All have the same weights, and each its own noise.
        batch: what the first one's broker wants becomes everybody's after the same update.
        cadence: a step is a part of the update's time.
        device: where the gradient is.
    """

    def __init__(
        self, component: Component, half: CriticHalf, batch: LiveBatch, cadence: Cadence, device: str
    ) -> None:
        self._half, self._batch, self._cadence = half, batch, cadence
        self._ranks = Ranks(component, device)
        self._unshared = 0
        self.count = self._ranks.count
        self.batch_size = batch.size

    @property
    def waiting_for(self) -> str:
        """Everybody else, where this one's part is given."""
        return f"gradients from {self._ranks.others}" if self._ranks.offered else ""

    @property
    def may_begin(self) -> bool:
        """Whether the last one is over, and was not the last of all."""
        return not (self._ranks.offered or self._ranks.ended)

    def join(self) -> None:
        """Wait until all are here."""
        self._ranks.join()

    def restore_point(self) -> Checkpoint | None:
        """As the first one has found it."""
        return self._ranks.restore_from

    def receive(self, transitions: int) -> None:
        """Tell the others with the next gradient."""
        self._unshared += transitions

    def attend(self, stopping: bool) -> None:
        """See that nobody is lost, and say so where this one is to stop.

        Raises:
            PeerLost: one is gone.
            PeerTimeout: one hangs.
        """
        self._ranks.watch()
        if stopping and self.may_begin:
            self._ranks.offer(self._half.gradient, 0, ending=True)

    def begin(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """Give this one's gradient."""
        metrics = self._half.backward(batch)
        self._ranks.offer(self._half.gradient, self._unshared, self._batch.wanted)
        return metrics

    def finish(self) -> Outcome | None:
        """Wait a moment for the others, and take the step that all of them take."""
        if not self._ranks.offered:  # nobody could be given it any more
            return Outcome(took_place=False, received_by_others=0)
        shared = self._ranks.result(self._half.gradient, SLICE_S)
        if shared is None:
            return None
        self._unshared -= shared.own
        if not shared.ended:
            with self._cadence.updating():
                self._half.step()
            self.batch_size = shared.batch_size
        return Outcome(not shared.ended, shared.received - shared.own)

    def leave(self, finish: Callable[[], bool]) -> None:
        """Take the last step that others have taken, and say what shows that all weights are the same."""
        until_s = time.monotonic() + LAST_STEP_S
        while not self._ranks.ended and time.monotonic() < until_s:
            if not self._ranks.offered:
                self._ranks.offer(self._half.gradient, 0, ending=True)
            finish()
        crc32 = checksum(self._half.trained)
        log.info("critics after %d updates: CRC-32 %08x", self._half.num_updates, crc32)


def updates_of(
    component: Component, half: CriticHalf, batch: LiveBatch, cadence: Cadence, device: str
) -> Updates:
    """As many as the plan has of this role take each update."""
    if component.plan.components[component.role].count.initial == 1:
        return OwnUpdates(component, half, batch)
    return SharedUpdates(component, half, batch, cadence, device)


def share_of(component: Component, options: Any) -> Any:
    """An algorithm's options for one of several learners: its part of the replay, and of the samples that
    must be there before the first update.
    """
    count = component.plan.components[component.role].count.initial
    names = ("replay_capacity", "learning_starts")
    return replace(options, **{name: math.ceil(getattr(options, name) / count) for name in names})


def seed_of(component: Component) -> int:
    """The run's own for the first learner; another for each one more, lest all draw the same noise."""
    first = component.index == 0
    return component.plan.run.seed if first else int(component.seed_sequence().generate_state(1)[0])
