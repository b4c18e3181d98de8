"""PUB and SUB: every subscriber gets the newest message, and the publisher never waits for a slow one."""

from __future__ import annotations

import math
import time
from typing import Any

import zmq

from spreeze_zmq.wire import KINDS, Buffer, Message, decode, encode
from spreeze_zmq.wire.channels.connections import TINY_FRAME_BYTES, ZERO_COPY_BYTES
from spreeze_zmq.wire.channels.sockets import MOST_REFUSED_AT_ONCE, Channel

#: Interval of requests to repeat the latest messages.
_ASK_INTERVAL_S = 0.01
#: Who has not asked again for this time has its answer: on a busy machine it may ask late.
_QUIET_ASKERS_S = 0.1
#: Who asks subscribes to this and its name, too, which no message begins with.
NAMED = b"\xff"
#: Subscribers whose names are kept, and the length of one.
_MOST_NAMES, _LONGEST_NAME = 1000, 64
#: A subscriber asks for the latest message after a silence of 4 times the last interval, in these bounds.
QUIET_S, MAX_QUIET_S = 1.0, 10.0


class Publisher(Channel):
    """The sending end. It never waits: a subscriber whose queue is full loses the message.

    It keeps the latest message of each retained kind (of ``set``, for each option) and repeats them on every
    new subscription. It therefore owns the arrays of its messages: ``publish`` makes large ones read-only.

    Attributes:
        subscriptions: number of subscriptions to everything so far, repeated ones included.
        published: number of messages published, which is the sequence of the next.
        latest: :func:`retained_key` -> sequence and frames of the message that late subscribers get.
        in_doubt: names of the subscribers that have not asked since a queue was full, which may be theirs.
            ZeroMQ does not tell whose it is, nor again while it stays full.
    """

    _type = zmq.XPUB
    _most_bytes = TINY_FRAME_BYTES

    def __init__(self, endpoint: str, **options: object) -> None:
        self.subscriptions = self.published = 0
        self.latest: dict[tuple[Any, ...], tuple[int, list[Buffer]]] = {}
        self._askers, self.in_doubt = set[bytes](), set[bytes]()
        self._is_lossy = True
        super().__init__(endpoint, **options)  # type: ignore[arg-type]

    def _set_options(self, high_water_mark: int, socket_buffer_bytes: int, linger_s: float) -> None:
        super()._set_options(high_water_mark, socket_buffer_bytes, linger_s)
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # also report repeated subscriptions

    def publish(self, message: Message) -> None:
        """Send ``message`` to every subscriber.

        Raises:
            WireError: the message is malformed or of a kind that the channel does not carry.
        """
        frames = self._encode(message, self.published)
        if not self._post(frames):
            self.in_doubt = set(self._askers)
        if (key := retained_key(message)) is not None:
            owned = [frame if len(frame) >= ZERO_COPY_BYTES else bytes(frame) for frame in frames]
            self.latest[key] = self.published, owned
        self.published += 1

    def lose_nothing(self) -> None:
        """Make sending fail at a full queue instead of dropping the message."""
        self._is_lossy = False
        self.socket.setsockopt(zmq.XPUB_NODROP, 1)

    def serve(self) -> None:
        """Repeat the latest messages, in their order, if there were subscriptions since the last call."""
        before = self.subscriptions
        try:
            for _ in range(MOST_REFUSED_AT_ONCE):  # the rest of a flood waits for the next call
                # ZeroMQ may withhold later frames of a message, so count each frame alone.
                if (frame := self.socket.recv())[:1] == b"\1":
                    self._note(frame[1:])
        except zmq.Again:
            pass
        if self.subscriptions > before:
            self._repeat()

    def _repeat(self) -> None:
        for _, frames in sorted(self.latest.values(), key=lambda kept: kept[0]):
            self._post(encode(decode(frames)._replace(repeat=True)))

    def _note(self, topic: bytes) -> None:
        """Count a subscription; the name of who asks follows it."""
        if topic[:1] != NAMED:
            self.subscriptions += 1
        elif (name := topic[1:]) in self._askers:
            self.in_doubt.discard(name)
        elif len(name) <= _LONGEST_NAME and len(self._askers) < _MOST_NAMES:
            self._askers.add(name)

    def _post(self, frames: list[Buffer]) -> bool:
        """Send to every subscriber whose queue has room; False if one that had room before has none."""
        self.socket.setsockopt(zmq.XPUB_NODROP, 1)
        all_had_room = self._send(frames)
        if self._is_lossy:
            self.socket.setsockopt(zmq.XPUB_NODROP, 0)
            if not all_had_room:
                self._send(frames)
        return all_had_room

    def await_askers(self, role: str, timeout_s: float) -> bool:
        """Serve until each process of a role that may have lost a message has asked for the latest, as nobody
        can when this end is gone, and has it. Returns at once where none has lost any; False if one does not
        ask in that time. What is queued for a reader may take as long to leave after ``close``.
        """
        self.socket.linger = math.ceil(1000 * timeout_s)

        def doubtful() -> bool:
            return any(name.rpartition(b"-")[0] == role.encode() for name in self.in_doubt)

        if not doubtful():
            return True
        until_s, asked = time.monotonic() + timeout_s, self.subscriptions
        quiet_s = time.monotonic() + _QUIET_ASKERS_S
        while (now_s := time.monotonic()) < until_s and (doubtful() or now_s < quiet_s):
            zmq.zmq_poll([(self.socket, zmq.POLLIN)], math.ceil(1000 * _ASK_INTERVAL_S))
            self.serve()
            if self.subscriptions > asked:  # it asks until the answer has come
                asked, quiet_s = self.subscriptions, time.monotonic() + _QUIET_ASKERS_S
        self._repeat()  # what it took for the answer may have been an older one, to others
        return not doubtful()


class Subscriber(Channel):
    """The receiving end: ``newest`` for weights, ``receive`` if every message matters.

    A message whose sequence is not later than the last one of its retained kind (from the same incarnation of
    the publisher) is skipped: it was repeated for another subscriber.

    At a full queue PUB drops the newest message, not the oldest, so a slow subscriber finds old messages and
    may have lost the last one. It then subscribes again, which makes the publisher repeat its latest: at once
    if ``newest`` finds that the queue was full or ``receive`` finds a gap in the sequence, and once after a
    silence, since the loss of the last message leaves no gap.

    Attributes:
        missed: messages that never arrived, counted from the gaps in the sequence.
        repeated: messages that arrived again and were skipped.
    """

    _type = zmq.SUB

    def __init__(self, endpoint: str, *, high_water_mark: int = 1000, **options: object) -> None:
        self.missed = 0
        self.repeated = 0
        self._high_water_mark = high_water_mark
        self._repetitions = 0
        self._publisher: tuple[str, int] | None = None
        self._last_sequence = -1
        self._first_new: int | None = None
        self._last_of_key: dict[tuple[Any, ...], int] = {}
        self._last_news_s, self._quiet_s, self._in_doubt = time.monotonic(), QUIET_S, False
        super().__init__(endpoint, high_water_mark=high_water_mark, **options)  # type: ignore[arg-type]
        self.ask_again()

    def receive(self) -> Message | None:
        """The next message; None if none waits."""
        missed = self.missed
        while (message := self._receive()) is not None:
            if self._is_news(message):
                if self.missed > missed:
                    self.ask_again()
                return message
            self.refusals.pass_over(message.sender, message.kind)
        return None

    def newest(self, answer_timeout_s: float = 0.05, *, ask: bool = False) -> Message | None:
        """The last waiting message; None if there is no new one.

        Args:
            answer_timeout_s: longest wait for the publisher to repeat its latest if the queue was full.
            ask: have it repeated also if the queue was not, and wait so long in any case: a relay may answer
                before the newest has come to it.
        """
        newest, drained = self._drain()
        if drained < self._high_water_mark and not ask:
            self._ask_when_quiet(newest is not None)
            return newest
        deadline_s, answered = time.monotonic() + answer_timeout_s, self._repetitions
        asked_s = 0.0
        while (ask or self._repetitions == answered) and (now_s := time.monotonic()) < deadline_s:
            # The publisher drops the repetition too while its queue is full: keep asking.
            if now_s - asked_s >= _ASK_INTERVAL_S:
                self.ask_again()
                asked_s = now_s
            if zmq.zmq_poll([(self.socket, zmq.POLLIN)], math.ceil(1000 * _ASK_INTERVAL_S)):
                newest, _ = self._drain(newest)
        return newest

    def ask_again(self) -> None:
        """Make the publisher repeat the latest message of each retained kind, and tell it who has asked."""
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        if self.sender:
            self.socket.setsockopt(zmq.SUBSCRIBE, NAMED + self.sender.encode())

    def _ask_when_quiet(self, has_news: bool) -> None:
        """Ask once in each silence that is long compared with the last interval between messages."""
        since_s = (now_s := time.monotonic()) - self._last_news_s
        if has_news:
            self._quiet_s = min(max(QUIET_S, 4 * since_s), MAX_QUIET_S)
            self._last_news_s, self._in_doubt = now_s, True
        elif self._in_doubt and since_s > self._quiet_s:
            self.ask_again()
            self._in_doubt = False

    def _drain(self, newest: Message | None = None) -> tuple[Message | None, int]:
        """The newest of ``newest`` and all that wait, and how many these were."""
        drained = 0
        while (message := self._receive()) is not None:
            drained += 1
            is_newest = self._is_news(message) and message.sequence == self._last_sequence
            older = newest if is_newest else message
            newest = message if is_newest else newest
            if older is not None:
                self.refusals.pass_over(older.sender, older.kind)
        return newest, drained

    def _is_news(self, message: Message) -> bool:
        if self._publisher != (publisher := (message.sender, message.incarnation)):
            self._publisher, self._last_sequence, self._first_new, self._last_of_key = publisher, -1, None, {}
        self._repetitions += message.repeat
        sequence, key = message.sequence, retained_key(message)
        if sequence <= (self._last_sequence if key is None else self._last_of_key.get(key, -1)):
            self.repeated += 1
            return False
        if key is not None:
            self._last_of_key[key] = sequence
        if sequence < self._last_sequence:  # counted as missed, or published while this end joined
            self.missed -= self._first_new is not None and sequence > self._first_new
            return True
        # Repetitions omit kinds that are not retained: a gap before the first new message is not a loss.
        if self._first_new is not None:
            self.missed += sequence - self._last_sequence - 1
        elif not message.repeat:
            self._first_new = sequence
        self._last_sequence = sequence
        return True


def retained_key(message: Message) -> tuple[Any, ...] | None:
    """The key under which a publisher keeps the latest message; None for kinds that are not retained."""
    spec = KINDS[message.kind]
    return (message.kind, *(message.fields[name] for name in spec.retained_by)) if spec.retained else None
