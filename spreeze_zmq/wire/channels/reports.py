"""The two ends of a channel on which many processes report to one: what waits in front of it has a bound.

A kind of message is cumulative whose figures count from the start of the sender: the newest says all that the
earlier ones do, so that a sender may leave one out, and a receiver that is behind handles the newest alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from spreeze_zmq.wire import KINDS, Buffer, Message, head_of
from spreeze_zmq.wire.channels.push_pull import Puller, Pusher
from spreeze_zmq.wire.channels.sockets import MOST_REFUSED_AT_ONCE

#: Most messages that a sender keeps until there is room for them.
MOST_KEPT = 1000
#: Most messages, and bytes of their frames, that a receiver has taken and not handled; what comes beyond
#: waits at the senders, which notice.
MOST_WAITING, MOST_BYTES = 10_000, 64 << 20
#: Memory that each frame takes besides its bytes.
FRAME_BYTES = 600
#: Longest time in which one call takes what has come.
GATHER_AT_MOST_S = 0.1

#: A sender and its incarnation; None where a header is not read.
_Life = tuple[str, int] | None
#: Where a message waits: whose it is, the number of the message before it that none takes the place of, and
#: its kind; or its own number and no kind.
_Place = tuple[_Life, int, str]


def carries_reports(kinds: tuple[str, ...]) -> bool:
    """Whether one of these kinds is cumulative."""
    return any(KINDS[kind].cumulative for kind in kinds)


class Outbox(Pusher):
    """The end of one that reports, and never waits for who reads it.

    Attributes:
        patient_until_s: until this monotonic time it waits for room after all, as at the end of a process.
        paused: whether everything is kept, as while the one who reads has ended and no other is there.
    """

    patient_until_s, paused = 0.0, False

    def __init__(self, endpoint: str, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self._kept: deque[Message] = deque()

    def post(self, message: Message) -> bool:
        """Send a message, after those that are kept. Without room a cumulative one is left out, any other is
        kept; False if it is left out, or if too many are kept.

        Raises:
            WireError: as :meth:`push`.
        """
        if self.serve() and self.push(message, self._patience_s):
            return True
        if KINDS[message.kind].cumulative or len(self._kept) >= MOST_KEPT:
            return False
        self._encode(message, 0)  # its mistakes show now
        self._kept.append(message)
        return True

    def serve(self) -> bool:
        """Send the messages that are kept, as far as there is room; returns whether another may follow."""
        while self._kept and not self.paused and self.push(self._kept[0], self._patience_s):
            self._kept.popleft()
        return not (self._kept or self.paused)

    @property
    def _patience_s(self) -> float:
        return max(0.0, self.patient_until_s - time.monotonic()) if self.patient_until_s else 0.0


class Inbox(Puller):
    """The end of who reads. A cumulative message takes the place of the sender's last one that waits: of each
    sender one waits, in the order in which the senders began to. Each is read after all others that its
    sender sent before it.

    Attributes:
        keeps_all: whether every message of a sender is to be read, by its name.
        merged: messages whose place a newer one has taken.
    """

    def __init__(self, endpoint: str, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self.keeps_all: Callable[[str], bool] = lambda sender: False
        self.merged = 0
        self._waiting: dict[_Place, list[Buffer]] = {}
        self._behind: dict[_Life, int] = {}  # of the last message of a life that waits and is not cumulative
        self._num_bytes = self._serial = 0

    @property
    def num_waiting(self) -> int:
        """Messages that have been gathered and not read."""
        return len(self._waiting)

    @property
    def num_gathered(self) -> int:
        """Messages that have been gathered, less those that have been read."""
        return len(self._waiting) + self.merged

    def gather(self) -> None:
        """Take what has come, as far as there is room."""
        self._wait_at_most(0.0)
        until_s = time.monotonic() + GATHER_AT_MOST_S
        while len(self._waiting) < MOST_WAITING and self._num_bytes < MOST_BYTES:
            if (frames := self._receive_frames()) is None:
                return
            self._keep(frames)
            if time.monotonic() > until_s:
                return

    def next(self) -> Message | None:
        """The message that has waited longest; None if none waits, or after ``MOST_REFUSED_AT_ONCE`` refused
        ones, which are counted and logged.
        """
        for _ in range(min(len(self._waiting), MOST_REFUSED_AT_ONCE)):
            place = life, number, kind = next(iter(self._waiting))
            if not kind and self._behind[life] == number:
                del self._behind[life]
            frames = self._waiting.pop(place)
            self._num_bytes -= _size(frames)
            if (message := self._taken(frames)) is not None:
                return message
        return None

    def _keep(self, frames: list[Buffer]) -> None:
        head = head_of(bytes(frames[0]))
        life = None if head is None else (head.sender, head.incarnation)
        if head is None or len(frames) > 1 or not head.spec.cumulative or self.keeps_all(head.sender):
            self._serial += 1
            self._behind[life] = self._serial
            place: _Place = (life, self._serial, "")
        else:
            place = (life, self._behind.get(life, 0), head.kind)
        if (before := self._waiting.get(place)) is not None:
            self.merged += 1
            self._num_bytes -= _size(before)
        self._waiting[place] = frames
        self._num_bytes += _size(frames)


def _size(frames: list[Buffer]) -> int:
    return sum(map(len, frames)) + FRAME_BYTES * len(frames)
