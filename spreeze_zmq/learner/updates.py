"""The updates of a critic-learner, alone or data-parallel with others, behind one interface.

An update is begun and finished. Alone it is complete after ``begin``. Among several processes it is complete
when all have begun theirs; each serves its sockets until then.
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

#: Longest single wait for the others' gradients; no socket is served in it.
SLICE_S = 0.005
#: Longest wait for the last common step when this process leaves.
LAST_STEP_S = 1.0

log = logging.getLogger("spreeze")


@dataclass(frozen=True)
class Outcome:
    """The outcome of an update.

    Attributes:
        took_place: whether a step was taken; False if a process is to stop.
        received_by_others: transitions that the others have received since the last update.
    """

    took_place: bool
    received_by_others: int


class Updates(Protocol):
    """The interface of a critic-learner's updates."""

    @property
    def count(self) -> int:
        """Number of processes that train together."""

    @property
    def waiting_for(self) -> str:
        """Which processes owe gradients to the update under way; empty if none is."""

    @property
    def may_begin(self) -> bool:
        """Whether another update may begin."""

    @property
    def batch_size(self) -> int:
        """Batch size of the next update."""

    def join(self) -> None:
        """Connect to the other processes."""

    def restore_point(self) -> Checkpoint | None:
        """The checkpoint that all processes restore."""

    def receive(self, transitions: int) -> None:
        """Note transitions that this process has received; the others learn of them with the next update."""

    def attend(self, stopping: bool) -> None:
        """Check on the others; with ``stopping``, announce that this process trains no further."""

    def begin(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """Compute the gradient of a batch; returns its metrics."""

    def finish(self) -> Outcome | None:
        """Take the step; None while gradients are missing."""

    def leave(self, finish: Callable[[], bool]) -> None:
        """Take the step that others may have taken already, and no further one."""


class OwnUpdates:
    """The updates of a critic-learner that trains alone."""

    count, waiting_for, may_begin = 1, "", True

    def __init__(self, component: Component, half: CriticHalf, batch: LiveBatch) -> None:
        self._half, self._batch = half, batch
        self.restore_point = component.restore_point

    @property
    def batch_size(self) -> int:
        """The size that the broker has requested."""
        return self._batch.wanted

    def join(self) -> None:
        """Do nothing."""

    def receive(self, transitions: int) -> None:
        """Do nothing."""

    def attend(self, stopping: bool) -> None:
        """Do nothing."""

    def begin(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """Take one full gradient step; returns metrics."""
        return self._half.update(batch)

    def finish(self) -> Outcome:
        """The outcome of the step that ``begin`` has taken."""
        return Outcome(took_place=True, received_by_others=0)

    def leave(self, finish: Callable[[], bool]) -> None:
        """Do nothing."""


class SharedUpdates:
    """The updates of one of several critic-learners: an all-reduce of gradients, then the same step in each.

    Args:
        component: this process.
        half: of this process. All have the same weights and different noise.
        batch: the size that the broker requests of the first process applies to all after the same update.
        cadence: accounts the step as a part of the update.
        device: of the gradient.
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
        """The other processes, while this one's gradient is offered."""
        return f"gradients from {self._ranks.others}" if self._ranks.offered else ""

    @property
    def may_begin(self) -> bool:
        """Whether no update is under way and no process is to stop."""
        return not (self._ranks.offered or self._ranks.ended)

    def join(self) -> None:
        """Wait until all processes have started, and connect."""
        self._ranks.join()

    def restore_point(self) -> Checkpoint | None:
        """The checkpoint that the first process has found."""
        return self._ranks.restore_from

    def receive(self, transitions: int) -> None:
        """Add to the transitions that travel with the next gradient."""
        self._unshared += transitions

    def attend(self, stopping: bool) -> None:
        """Check that no process is lost; with ``stopping``, announce that this one stops.

        Raises:
            PeerLost: one is gone.
            PeerTimeout: one hangs.
        """
        self._ranks.watch()
        if stopping and self.may_begin:
            self._ranks.offer(self._half.gradient, 0, ending=True)

    def begin(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """Compute this process's gradient and begin the all-reduce; returns metrics."""
        metrics = self._half.backward(batch)
        self._ranks.offer(self._half.gradient, self._unshared, self._batch.wanted)
        return metrics

    def finish(self) -> Outcome | None:
        """Wait up to ``SLICE_S`` for the others, and take the common step."""
        if not self._ranks.offered:  # the all-reduce has failed at the end of the run
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
        """Finish the pending all-reduce, and log a CRC of the weights, which is the same for all."""
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
    """The updates of a critic-learner, shared if the plan has several."""
    if component.plan.components[component.role].count.initial == 1:
        return OwnUpdates(component, half, batch)
    return SharedUpdates(component, half, batch, cadence, device)


def share_of(component: Component, options: Any) -> Any:
    """An algorithm's options for one of several critic-learners, each of which has its share of
    ``replay_capacity`` and ``learning_starts``.
    """
    count = component.plan.components[component.role].count.initial
    if count == 1:
        return options
    names = ("replay_capacity", "learning_starts")
    return replace(options, **{name: math.ceil(getattr(options, name) / count) for name in names})


def seed_of(component: Component) -> int:
    """The run's seed for the first learner of a role, a derived one for each other, so that noise differs."""
    first = component.index == 0
    return component.plan.run.seed if first else int(component.seed_sequence().generate_state(1)[0])
