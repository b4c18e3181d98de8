"""Publishes a learner's weights: when it is due, how they leave the device, and the record of the losses."""

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

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.channels import Publisher
from spreeze_zmq.component import Component
from spreeze_zmq.device import Download
from spreeze_zmq.errors import Diverged, WireError
from spreeze_zmq.learner.lag import VERSION_FILE, Versions
from spreeze_zmq.plan.roles import POLICY
from spreeze_zmq.wire import Message

#: Largest share of the time of its updates that a learner spends on publications.
PUBLISH_COST = 0.02
#: Seconds of updates whose unspent publication time can be saved for an expensive publication.
CREDIT_HORIZON_S = 10.0
#: Publications that the reported interval is averaged over.
INTERVALS_SHOWN = 16


class Cadence:
    """Decides when the next publication is due: by time and cost, or by the count of updates.

    By time, publications are at least ``interval_s`` apart, and further apart if they would otherwise take
    more than a share ``cost`` of the time of updates: updates earn the time that publications spend.

    Args:
        interval_s: shortest time between two publications, if ``every`` is 0.
        every: critic updates between two publications; 0 to publish by time.
        cost: largest share of the time of updates, if ``every`` is 0.
        clock: wall time in seconds.
        work_clock: work time of updates and publications in seconds. On a CPU the CPU time of this thread: a
            subscriber that a publication wakes may take this core, and its work is no cost of publication.
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
        """Whether a publication is due after ``updates`` critic updates; True once per publication."""
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
        """Charge the enclosed time to an update; it earns time for publications."""
        began_s = self._work_clock()
        yield
        spent_s = self._work_clock() - began_s
        self._updating_s += spent_s
        self._credit_s = min(self._credit_s + self.cost * spent_s, self.cost * CREDIT_HORIZON_S)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Charge the enclosed time to a publication; free before the first update."""
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
        publisher: the channel's end.
        cadence: measures the cost of publications.
        device: torch's name of the device that holds the weights; from a CPU they are published at once.
    """

    def __init__(self, publisher: Publisher, cadence: Cadence, device: str) -> None:
        self._publisher = publisher
        self._cadence = cadence
        self._download = Download(torch.device(device))
        self._make: Callable[[NDArray[np.float32]], Message] | None = None

    def put(
        self, weights: torch.Tensor, make: Callable[[NDArray[np.float32]], Message], *, wait: bool
    ) -> None:
        """Start a publication; publications by count are finished before this returns.

        Args:
            weights: flat float32 ``[P]`` on the device.
            make: builds the message from a copy of the weights on the host.
            wait: finish the publication before this returns in any case.
        """
        self.serve(wait=True)
        with self._cadence.publishing():
            self._download.start(weights)
            self._make = make
        self.serve(wait=wait or self._cadence.every > 0)

    def serve(self, *, wait: bool = False) -> bool:
        """Publish the weights once their copy has arrived; ``wait`` waits for the copy.

        Returns:
            Whether no copy is pending any more.

        Raises:
            Diverged: a weight is not finite.
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


class PolicyOutlet:
    """Publishes the policy with its version, its description and the limits of collection.

    Args:
        component: the learner.
        half: holds the policy.
        cadence: measures the cost of publications.
        device: the device of the half.
        first_version: version of the run's first policy; 0 stands for uniformly random actions.

    Attributes:
        versions: versions of the published policies.
        outbox: copies the weights off the device.
        published: whether this process has published a policy.
    """

    def __init__(
        self, component: Component, half: AutogradHalf, cadence: Cadence, device: str, first_version: int = 0
    ) -> None:
        self.half = half
        self.versions = Versions(Path(component.plan.socket_dir, VERSION_FILE), first_version)
        self.outbox = Outbox(component.open(POLICY), cadence, device)
        self.published = False

    def publish(
        self,
        *,
        critic_updates: int,
        env_steps: int,
        collect_until: Mapping[str, int] | None,
        wait: bool,
    ) -> None:
        """Publish the current weights under the newest version.

        Args:
            critic_updates: critic updates that the policy has followed.
            env_steps: transitions sampled so far.
            collect_until: stream -> position up to which its sampler may begin rollouts under this version;
                ``"*"`` for every stream that is not named. None sets no limit.
            wait: finish the publication before this returns.
        """
        self.half.env_steps = env_steps
        fields: dict[str, Any] = {
            "version": self.versions.newest,
            "critic_updates": critic_updates,
            "actor_updates": self.half.num_updates,
            "description": self.half.description(),
            "extras": {"env_steps": env_steps},
        }
        if collect_until is not None:
            fields["collect_until"] = dict(collect_until)

        def message(weights: Any) -> Message:
            return Message("policy", fields, self.half.policy_arrays(weights))

        self.outbox.put(self.half.weights, message, wait=wait)
        self.published = True


class Record:
    """Writes one line of JSON per publication by count: the losses at that count, and no time, so that two
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
