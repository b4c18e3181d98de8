"""PUB and SUB: the newest message to everybody, and nobody waits for a slow reader."""

from __future__ import annotations

import math
import time
from typing import Any

import zmq

from spreeze_zmq.channels.sockets import ZERO_COPY_BYTES, Channel
from spreeze_zmq.wire import KINDS, Buffer, Message, decode, encode

#: Where no answer has come for this long, none is on its way.
_ASK_INTERVAL_S = 0.01
#: Silence after which the last message may have been lost: four times the last pause, within these bounds.
QUIET_S, MAX_QUIET_S = 1.0, 10.0


class Publisher(Channel):
    """The sending end. It never waits: what a subscriber has no place for is lost to that subscriber.

    The latest message of each retained kind (of ``set``, for each option) is kept and sent again when
    somebody subscribes, so that who joins late has it at once. It therefore owns the arrays that it was
    given: large ones are read-only from then on.
    """

    _type = zmq.XPUB

    def __init__(self, endpoint: str, **options: object) -> None:
        self._published = 0
        self._latest: dict[tuple[Any, ...], tuple[int, list[Buffer]]] = {}
        super().__init__(endpoint, **options)  # type: ignore[arg-type]

    def _set_options(self, high_water_mark: int, socket_buffer_bytes: int, linger_s: float) -> None:
        super()._set_options(high_water_mark, socket_buffer_bytes, linger_s)
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # every subscription is told, not only the first of all

    def publish(self, message: Message) -> None:
        """Send ``message`` to every subscriber.

        Raises:
            WireError: the message cannot travel.
        """
        frames = self._encode(message, self._published)
        self._send(frames)
        if (key := retained_key(message)) is not None:
            owned = [frame if len(frame) >= ZERO_COPY_BYTES else bytes(frame) for frame in frames]
            self._latest[key] = self._published, owned
        self._published += 1

    def serve(self) -> None:
        """Answer those who have subscribed since the last call with the latest messages, in their order."""
        subscribed = False
        while (frames := self._receive_frames()) is not None:
            subscribed |= len(frames[0]) > 0 and frames[0][0] == 1
        if subscribed:
            for _, frames in sorted(self._latest.values(), key=lambda kept: kept[0]):
                self._send(encode(decode(frames)._replace(repeat=True)))


class Subscriber(Channel):
    """The receiving end: ``newest`` for weights, ``receive`` for messages that each matter.

    What it has had already (of the same life of the publisher, of the same retained kind, no later sequence)
    is passed over, so that a message repeated for somebody else does no harm.

    PUB drops the newest, not the oldest, where a queue is full: a reader that was away finds old messages,
    and the last one published may be lost to it. So it subscribes once more, which makes the publisher send
    its latest again: at once where ``newest`` finds a queue that had filled up or ``receive`` a gap in the
    sequence, and once when nothing newer has come for a while, since the last one leaves no trace.

    Attributes:
        missed: messages that were published and never came, counted from the gaps in the sequence.
        repeated: messages that came again and were passed over.
    """

    _type = zmq.SUB

    def __init__(self, endpoint: str, *, high_water_mark: int = 1000, **options: object) -> None:
        self.missed = 0
        self.repeated = 0
        self._high_water_mark = high_water_mark
        self._answers = 0
        self._life: tuple[str, int] | None = None
        self._last_sequence = -1
        self._live_from: int | None = None
        self._had: dict[tuple[Any, ...], int] = {}
        self._news_s, self._quiet_s, self._in_doubt = time.monotonic(), QUIET_S, False
        super().__init__(endpoint, high_water_mark=high_water_mark, **options)  # type: ignore[arg-type]
        self.ask_again()

    def receive(self) -> Message | None:
        """The next message; None where none waits."""
        missed = self.missed
        while (message := self._receive()) is not None:
            if self._is_news(message):
                if self.missed > missed:
                    self.ask_again()
                return message
        return None

    def newest(self, settle_s: float = 0.05) -> Message | None:
        """The last of the messages that wait; None where there is no news.

        Args:
            settle_s: longest wait for the publisher to send its latest again, where the queue had filled up.
        """
        newest, drained = self._drain()
        if drained < self._high_water_mark:
            self._ask_when_quiet(newest is not None)
            return newest
        deadline_s, answered = time.monotonic() + settle_s, self._answers
        asked_s = 0.0
        while self._answers == answered and (now_s := time.monotonic()) < deadline_s:
            # The answer is itself dropped while older messages still fill the publisher's queue: keep asking.
            if now_s - asked_s >= _ASK_INTERVAL_S:
                self.ask_again()
                asked_s = now_s
            if zmq.zmq_poll([(self.socket, zmq.POLLIN)], math.ceil(1000 * _ASK_INTERVAL_S)):
                later, _ = self._drain()
                newest = later or newest
        return newest

    def ask_again(self) -> None:
        """Make the publisher send the latest message of each retained kind again."""
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")

    def _ask_when_quiet(self, has_news: bool) -> None:
        """Ask once after each silence, of a length that is none in the rhythm of the last messages."""
        since_s = (now_s := time.monotonic()) - self._news_s
        if has_news:
            self._quiet_s = min(max(QUIET_S, 4 * since_s), MAX_QUIET_S)
            self._news_s, self._in_doubt = now_s, True
        elif self._in_doubt and since_s > self._quiet_s:
            self.ask_again()
            self._in_doubt = False

    def _drain(self) -> tuple[Message | None, int]:
        newest, drained = None, 0
        while (message := self._receive()) is not None:
            drained += 1
            if self._is_news(message) and message.sequence == self._last_sequence:
                newest = message
        return newest, drained

    def _is_news(self, message: Message) -> bool:
        if self._life != (life := (message.sender, message.incarnation)):
            self._life, self._last_sequence, self._live_from, self._had = life, -1, None, {}
        self._answers += message.repeat
        sequence, key = message.sequence, retained_key(message)
        if sequence <= (self._last_sequence if key is None else self._had.get(key, -1)):
            self.repeated += 1
            return False
        if key is not None:
            self._had[key] = sequence
        if sequence < self._last_sequence:  # it was lost, or published while this end was joining
            self.missed -= self._live_from is not None and sequence > self._live_from
            return True
        # What is repeated on joining leaves out the kinds that are not retained: no gap, only the past.
        if self._live_from is not None:
            self.missed += sequence - self._last_sequence - 1
        elif not message.repeat:
            self._live_from = sequence
        self._last_sequence = sequence
        return True


def retained_key(message: Message) -> tuple[Any, ...] | None:
    """The latest message of each such key is kept for late joiners; None for a kind that is not retained."""
    spec = KINDS[message.kind]
    return (message.kind, *(message.fields[name] for name in spec.retained_by)) if spec.retained else None
