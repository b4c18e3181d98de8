"""When a learner publishes, what that costs it, and what it writes down as it does."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.channels import Publisher
from spreeze_zmq.device import Download
from spreeze_zmq.wire import Message

#: Share of the time of its updates that a learner spends on publications.
PUBLISH_COST = 0.02
#: What cheap publications leave of so many seconds of updates may be spent on a dear one.
CREDIT_HORIZON_S = 10.0
#: Publications that the reported interval is the mean of.
INTERVALS_SHOWN = 16


class Cadence:
    """Says when the next publication is due: by the clock and by what they cost, or by the count of updates.

    By the clock they are at least ``interval_s`` apart, and further where they would take more than ``cost``
    of the time spent on updates: each has to be earned by updates before the next is due.

    Args:
        interval_s: least time between two, where ``every`` is 0.
        every: critic updates between two.
        cost: share of the time of updates, where ``every`` is 0.
        clock: seconds on the wall.
        work_clock: seconds of the work that is compared. On a CPU those of this thread: subscribers whom a
            publication wakes take the core from it, and what they do is not its cost.
    """

    def __init__(
        self,
        interval_s: float,
        every: int,
        cost: float = PUBLISH_COST,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.interval_s = interval_s
        self.every = every
        self.cost = cost
        self.published = 0
        self.due_s = 0.0
        self._clock = clock
        self._work_clock = work_clock
        self._credit_s = self._updating_s = self._publishing_s = 0.0
        self._times_s: deque[float] = deque(maxlen=INTERVALS_SHOWN + 1)
        self._num_bytes = 0

    def due(self, updates: int) -> bool:
        """Whether ``updates`` critic updates, or time and cost, call for one now; true once for each."""
        if self.every:
            crossed = updates // self.every
            self.published, crossed = max(crossed, self.published), crossed - self.published
            return crossed > 0
        now_s = self._clock()
        if now_s < self.due_s or self._credit_s < 0.0:
            return False
        self.due_s = now_s + self.interval_s
        return True

    def restart(self) -> None:
        """Count from 0 again."""
        self.published = 0

    @contextmanager
    def updating(self) -> Iterator[None]:
        """The time inside is an update's: it earns the next publication."""
        began_s = self._work_clock()
        yield
        spent_s = self._work_clock() - began_s
        self._updating_s += spent_s
        self._credit_s = min(self._credit_s + self.cost * spent_s, self.cost * CREDIT_HORIZON_S)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """The time inside is a publication's, or a part of one's. Before the first update it is free."""
        began_s = self._work_clock()
        yield
        if self._updating_s:
            spent_s = self._work_clock() - began_s
            self._publishing_s += spent_s
            self._credit_s -= spent_s

    def sent(self, message: Message) -> None:
        """Note for the figures what has been published."""
        self._times_s.append(self._clock())
        self._num_bytes = sum(array.nbytes for array in message.arrays.values())

    def figures(self) -> dict[str, float]:
        """``interval_s`` between the last publications, their ``cost`` as a share of the time of all updates,
        and the ``bytes`` of the last one.
        """
        gaps = len(self._times_s) - 1
        return {
            "interval_s": (self._times_s[-1] - self._times_s[0]) / gaps if gaps > 0 else 0.0,
            "cost": self._publishing_s / self._updating_s if self._updating_s else 0.0,
            "bytes": self._num_bytes,
        }


class Outbox:
    """Publishes weights as they were when they were put in, once they have come off the device.

    Args:
        publisher: of the channel.
        cadence: is charged with what it costs.
        device: where the weights are, as torch names it; on a CPU they are there at once.
    """

    def __init__(self, publisher: Publisher, cadence: Cadence, device: str) -> None:
        self._publisher = publisher
        self._cadence = cadence
        self._download = Download(torch.device(device))
        self._make: Callable[[NDArray[np.float32]], Message] | None = None

    @property
    def busy(self) -> bool:
        """Whether weights are still on their way."""
        return self._make is not None

    def put(
        self, weights: torch.Tensor, make: Callable[[NDArray[np.float32]], Message], *, wait: bool
    ) -> None:
        """Begin to publish.

        Args:
            weights: flat, on the device.
            make: the message of a copy of them on the host.
            wait: publish before this returns.
        """
        self.serve(wait=True)
        with self._cadence.publishing():
            self._download.start(weights)
            self._make = make
        self.serve(wait=wait)

    def serve(self, *, wait: bool = False) -> None:
        """Publish what has arrived meanwhile, or ``wait`` for it."""
        if self._make is None or not self._download.ready(wait=wait):
            return
        with self._cadence.publishing():
            message = self._make(self._download.array())
            self._publisher.publish(message)
        self._make = None
        self._cadence.sent(message)


class Record:
    """One line of JSON for each counted publication, with the losses at that count and no time in it: two
    runs in lock-step write the same bytes. Nothing is written where publications go by the clock.
    """

    def __init__(self, path: Path, cadence: Cadence) -> None:
        self.path = path if cadence.every else None

    def write(self, counts: Mapping[str, int], metrics: Mapping[str, Any]) -> None:
        """Append one line; waits for the device."""
        if self.path is None:
            return
        self.path.parent.mkdir(exist_ok=True)
        line = json.dumps({**counts, **{name: float(value) for name, value in metrics.items()}})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
