"""When a learner publishes: by the count of its updates, or by the clock, as far as the cost allows."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spreeze_zmq.base.usage import Threads
from spreeze_zmq.component import Component
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import SENDING_THREADS

log = logging.getLogger("spreeze")

#: Largest share of the time of its updates that a learner spends on publications.
PUBLISH_COST = 0.02
#: Longest time for which publications wait for the last one: what comes in takes that thread's time too.
LONGEST_SENDING_S = 10.0
#: Seconds of updates whose unspent publication time can be saved for an expensive publication.
CREDIT_HORIZON_S = 10.0
#: Largest share of a core that ZeroMQ's thread may take to send publications to all who subscribe.
SENDING_SHARE = 0.25
#: Publications that the reported interval is averaged over.
INTERVALS_SHOWN = 16


class Cadence:
    """Decides when the next publication is due: by time and cost, or by the count of updates.

    By time, publications are at least ``interval_s`` apart, and further apart if they would otherwise take
    more than a share ``cost`` of the time of updates: updates earn the time that publications spend. Sending
    is another thread's work and grows with the number of subscribers: until it has taken less than
    ``SENDING_SHARE`` of the time since the last publication, none is due.

    Args:
        interval_s: shortest time between two publications, if ``every`` is 0.
        every: critic updates between two publications; 0 to publish by time.
        cost: largest share of the time of updates, if ``every`` is 0.
        clock: wall time in seconds.
        work_clock: work time of updates and publications in seconds. On a CPU the CPU time of this thread: a
            subscriber that a publication wakes may take this core, and its work is no cost of publication.
        sending_clock: CPU time in seconds of the threads that send.
    """

    def __init__(
        self,
        interval_s: float,
        every: int,
        cost: float = PUBLISH_COST,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
        sending_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.interval_s = interval_s
        self.every = every
        self.cost = cost
        self.published = 0
        self.due_s = 0.0
        self._clock = clock
        self.work_clock, self._sending_clock = work_clock, sending_clock
        self._last_s, self._sent_s, self._is_slow = -math.inf, 0.0, False
        self._credit_s = self._updating_s = self._publishing_s = 0.0
        self._times_s: deque[float] = deque(maxlen=INTERVALS_SHOWN + 1)
        self._num_bytes = 0
        self._is_at_rest = False

    def due(self, updates: int) -> bool:
        """Whether a publication is due after ``updates`` critic updates; True once per publication."""
        if self.every:
            crossed = updates // self.every
            self.published, crossed = max(crossed, self.published), crossed - self.published
            return crossed > 0
        now_s = self._clock()
        if now_s < self.due_s or self._credit_s < 0.0 or self._is_sending(now_s):
            return False
        self.due_s, self._last_s, self._sent_s = now_s + self.interval_s, now_s, self._sending_clock()
        return True

    def _is_sending(self, now_s: float) -> bool:
        """Whether the last publication has taken too much of the time since then to be sent."""
        sent_s, since_s = self._sending_clock() - self._sent_s, now_s - self._last_s
        if sent_s <= SENDING_SHARE * since_s or since_s > LONGEST_SENDING_S:
            return False
        if not self._is_slow:
            self._is_slow = True
            log.info("publications wait for the last one to be sent, which has taken %.2f s by now", sent_s)
        return True

    def rest(self) -> None:
        """No more is published: the figures stay as they are."""
        self._is_at_rest = True

    def restart(self) -> None:
        """Count updates from 0 again."""
        self.published = 0

    def updated(self, began_s: float) -> None:
        """Charge the work time since ``began_s`` to an update; it earns time for publications."""
        spent_s = self.work_clock() - began_s
        self._updating_s += spent_s
        self._credit_s = min(self._credit_s + self.cost * spent_s, self.cost * CREDIT_HORIZON_S)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Charge the enclosed time to a publication; free before the first update."""
        began_s = self.work_clock()
        yield
        if self._updating_s:
            spent_s = self.work_clock() - began_s
            self._publishing_s += spent_s
            self._credit_s -= spent_s

    def sent(self, message: Message) -> None:
        """Note a published message for the figures."""
        self._times_s.append(self._clock())
        self._num_bytes = sum(array.nbytes for array in message.arrays.values())

    def figures(self) -> dict[str, float]:
        """Mean ``interval_s`` between the last publications, or the time since the last one where that is
        longer; ``cost`` of all publications as a share of the time of all updates, and ``bytes`` of the last.
        """
        times_s, interval_s = self._times_s, 0.0
        if len(times_s) > 1:
            since_s = 0.0 if self._is_at_rest else self._clock() - times_s[-1]
            interval_s = max((times_s[-1] - times_s[0]) / (len(times_s) - 1), since_s)
        return {
            "interval_s": interval_s,
            "cost": self._publishing_s / self._updating_s if self._updating_s else 0.0,
            "bytes": self._num_bytes,
        }


def cadence_of(component: Component) -> Cadence:
    """The cadence at which the plan has this learner publish."""
    own, every = component.options, component.plan.balance.publish_every_updates
    # This thread computes updates on a CPU and waits for those on a GPU.
    work_clock = time.thread_time if own["device"] == "cpu" else time.monotonic
    sending = Threads(SENDING_THREADS)
    return Cadence(
        own["publish_interval_s"],
        every,
        own["publish_cost"],
        work_clock=work_clock,
        sending_clock=sending.cpu_s,
    )
