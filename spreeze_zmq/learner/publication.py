"""When a learner publishes its weights, how they leave the device, and the record of each publication."""

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
from spreeze_zmq.errors import Diverged, WireError
from spreeze_zmq.wire import Message

#: Share of the time of its updates that a learner spends on publications.
PUBLISH_COST = 0.02
#: Seconds of updates whose unspent publication time can be saved up for an expensive publication.
CREDIT_HORIZON_S = 10.0
#: Publications that the reported interval is averaged over.
INTERVALS_SHOWN = 16


class Cadence:
    """Decides when the next publication is due: by time and cost, or by the count of updates.

    By time, publications are at least ``interval_s`` apart, and further if they would take more than a share
    ``cost`` of the time spent on updates: updates earn the time that publications spend.

    Args:
        interval_s: least time between two publications, if ``every`` is 0.
        every: critic updates between two publications; 0 to publish by time.
        cost: largest share of the time of updates, if ``every`` is 0.
        clock: wall time in seconds.
        work_clock: seconds of work of updates and publications. On a CPU the time of this thread: subscribers
            that a publication wakes may take its core, and their work is not its cost.
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
        """Whether a publication is due after ``updates`` critic updates; True once for each."""
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
        """Count updates from 0 again."""
        self.published = 0

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Account the enclosed time as an update's; it earns time for publications."""
        began_s = self._work_clock()
        yield
        spent_s = self._work_clock() - began_s
        self._updating_s += spent_s
        self._credit_s = min(self._credit_s + self.cost * spent_s, self.cost * CREDIT_HORIZON_S)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Account the enclosed time as a publication's, or a part of one's; free before the first update."""
        began_s = self._work_clock()
        yield
        if self._updating_s:
            spent_s = self._work_clock() - began_s
            self._publishing_s += spent_s
            self._credit_s -= spent_s

    def sent(self, message: Message) -> None:
        """Note a published message for the figures."""
        self._times_s.append(self._clock())
        self._num_bytes = sum(array.nbytes for array in message.arrays.values())

    def figures(self) -> dict[str, float]:
        """Mean ``interval_s`` between the last publications, ``cost`` of all publications as a share of the
        time of all updates, and ``bytes`` of the last one.
        """
        gaps = len(self._times_s) - 1
        return {
            "interval_s": (self._times_s[-1] - self._times_s[0]) / gaps if gaps > 0 else 0.0,
            "cost": self._publishing_s / self._updating_s if self._updating_s else 0.0,
            "bytes": self._num_bytes,
        }


class Outbox:
    """Copies weights off the device and publishes the copy when it has arrived.

    Args:
        publisher: of the channel.
        cadence: accounts the cost.
        device: of the weights, by torch's name; on a CPU they are published at once.
    """

    def __init__(self, publisher: Publisher, cadence: Cadence, device: str) -> None:
        self._publisher = publisher
        self._cadence = cadence
        self._download = Download(torch.device(device))
        self._make: Callable[[NDArray[np.float32]], Message] | None = None

    def put(
        self, weights: torch.Tensor, make: Callable[[NDArray[np.float32]], Message], *, wait: bool
    ) -> None:
        """Begin to publish; counted publications are finished before this returns.

        Args:
            weights: flat ``[P]``, on the device.
            make: builds the message from a copy of the weights on the host.
            wait: finish before this returns in any case.
        """
        self.serve(wait=True)
        with self._cadence.publishing():
            self._download.start(weights)
            self._make = make
        self.serve(wait=wait or self._cadence.every > 0)

    def serve(self, *, wait: bool = False) -> bool:
        """Publish the weights if they have arrived; ``wait`` for them.

        Returns:
            Whether no weights are under way any more.

        Raises:
            Diverged: a number among them is not finite.
        """
        if self._make is None:
            return True
        if not self._download.ready(wait=wait):
            return False
        make, self._make = self._make, None
        try:
            with self._cadence.publishing():
                message = make(self._download.array())
                self._publisher.publish(message)
        except (OverflowError, WireError) as error:
            if isinstance(error, WireError) and error.reason != "not_finite":
                raise
            hint = "a lower learning_rate or max_gradient_norm may help"
            raise Diverged("weights", f"{error}; {hint}") from error
        self._cadence.sent(message)
        return True


class Record:
    """Writes one line of JSON for each counted publication, with the losses at that count but no time: two
    runs in lock-step write the same bytes. Publications by the clock are not recorded.
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
