"""The account of samples, kept at both ends of a channel: produced = received + dropped + in flight.

Samplers count the transitions that they push. Learners count those that they receive, and find gaps from the
stream position in each rollout; a stream is what one incarnation of one sampler pushes. The broker joins both
counts. No term is computed as the remainder of the others, so an error in any term shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.receipts import MOST_STREAMS, Followed, Receipt, superseded
from spreeze_zmq.broker.rows import row_of

#: Most incarnations of learners that an account keeps.
MOST_TAKERS = 1000
#: Causes for which transitions were not received, beside the ends of samplers; a summary lists so many.
MISSING = "lost with a learner's earlier process, or on the way to it"
OTHERS = "sent and never received; other samplers"
#: Stand for the streams that have left their places, and for all others; no stream has such a name.
LEFT, ALL = "", "/"
MOST_CAUSES = 20


@dataclass
class Samples:
    """The sums of an account, in transitions."""

    produced: int = 0
    received: int = 0
    dropped: int = 0
    in_flight: int = 0


@dataclass
class Fate:
    """What became of the transitions of one stream: of those that were received, and of the others that its
    sampler says it has pushed. A stranger's rollout may claim that any number came before it.

    Attributes:
        received: by a learner.
        refused: by a learner that received them.
        missing: a learner received later ones, without these: they were lost with its earlier process, or on
            the way.
        ahead: no learner has received any so late.
    """

    received: int = 0
    refused: int = 0
    missing: int = 0
    ahead: int = 0

    def add(self, other: Fate, sign: int = 1) -> None:
        """Add the numbers of another one, or with a ``sign`` of -1 take them away."""
        self.received += sign * other.received
        self.refused += sign * other.refused
        self.missing += sign * other.missing
        self.ahead += sign * other.ahead


@dataclass
class SampleAccount:
    """The broker's end: joins the reports of samplers and learners of one channel, across their restarts.

    Attributes:
        pushed: stream -> transitions pushed, from its sampler's last report.
        takers: learner incarnation -> stream -> receipt, oldest incarnation first.
        past: what became of streams that have left their places to those of later lives of their samplers.
        left: the last of these, with what their samplers had pushed.
    """

    pushed: dict[str, int] = field(default_factory=dict)
    takers: dict[str, dict[str, Receipt]] = field(default_factory=dict)
    past: Fate = field(default_factory=Fate)
    left: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known: dict[str, Fate] = {}  # of each stream when the account was summed last
        self._sums = Fate()  # of these
        self._changed = dict.fromkeys((*self.pushed, *chain.from_iterable(self.takers.values())))
        self._lives = Followed()
        for stream in self.pushed:
            self._lives.take(stream)

    def report_pushed(self, stream: str, transitions: int) -> None:
        """Record how many transitions a sampler has pushed on this channel."""
        before = self.pushed.get(stream, -1)
        if transitions > before and self._has_room(self.pushed, stream, self._lives.followed):
            self.pushed[stream] = transitions
            self._changed[stream] = None
            self._lives.take(stream)

    def report_taken(
        self, taker: str, streams: Mapping[str, Mapping[str, int]], most: float = math.inf
    ) -> None:
        """Record the receipts by stream of a learner's incarnation ``taker``, which can have received at most
        ``most`` transitions.

        Raises:
            WireError: ``false_account``, one of them cannot be true; none of them is recorded.
        """
        before = self.takers.get(taker, {})
        receipts: dict[str, Receipt] = {}
        for name, values in streams.items():
            receipt, known = row_of(Receipt, values), before.get(name)
            # The learner had given its place to another stream: it is that of a life long gone.
            again = known is not None and receipt.first >= known.last > known.first
            receipts |= {} if again else {name: receipt}
            if fault := receipt.fault(None if again else known, most):
                raise WireError("false_account", f"what {taker} has taken of {name[:80]!r}: {fault}")
        streams_of = self.takers.setdefault(taker, {})
        if len(self.takers) > MOST_TAKERS:
            self._join_oldest()
        for name in sorted(receipts, key=before.__contains__, reverse=True):  # before any of them leaves
            if streams_of.get(name) == receipts[name]:
                continue
            if self._has_room(streams_of, name, superseded(streams_of)):
                streams_of.pop(name, None)
                streams_of[name] = receipts[name]  # what has changed last is the newest
                self._changed[name] = None

    def _join_oldest(self) -> None:
        """Make one of the two oldest incarnations of a learner that lives no more."""
        past = [*superseded(self.takers)]
        for place, old in enumerate(past):
            name = old.partition("/")[0]
            if later := next((one for one in past[place + 1 :] if one.partition("/")[0] == name), ""):
                streams = self.takers[later]
                for stream, receipt in self.takers.pop(old).items():
                    streams[stream] = receipt.then(streams[stream]) if stream in streams else receipt
                    self._changed[stream] = None
                return

    def _has_room(self, streams: Mapping[str, Any], name: str, dead: Iterable[str]) -> bool:
        """Whether a stream has a place among these, or gets that of one whose sampler lives no more."""
        if name in streams or name in self.left:
            return name in streams
        if len(streams) >= MOST_STREAMS:
            if (old := next(iter(dead), None)) is None:
                return False
            self._leave(old)
        return True

    def _leave(self, stream: str) -> None:
        """Keep of a stream only the sums."""
        self.past.add(self._fate(stream))
        self._sums.add(self._known.pop(stream, Fate()), -1)
        self._changed.pop(stream, None)
        self._lives.forget(stream)
        self.left[stream] = self.pushed.pop(stream, 0)
        for streams in self.takers.values():
            streams.pop(stream, None)
        if len(self.left) > MOST_STREAMS:
            del self.left[next(iter(self.left))]

    def totals(self, alive: Collection[str] | None = None) -> Samples:
        """Sum the account.

        Args:
            alive: None while the run goes on. At the end, when the learners have drained their channels, the
                streams of living samplers: what did not arrive from any other stream counts as dropped.
        """
        sums = Samples()
        for stream, fate in self._fates(apart=alive is not None):
            is_under_way = (alive is None and stream != LEFT) or (alive is not None and stream in alive)
            sums.produced += fate.received + fate.refused + fate.missing + fate.ahead
            sums.received += fate.received
            sums.dropped += fate.refused + fate.missing + (0 if is_under_way else fate.ahead)
            sums.in_flight += fate.ahead if is_under_way else 0
        return sums

    def undelivered(self, alive: Collection[str] | None, how: Callable[[str], str]) -> dict[str, int]:
        """The causes of what :meth:`totals` counts as dropped and no learner has refused, in words, and the
        transitions of each.

        Args:
            alive: as of :meth:`totals`.
            how: how the process of a stream has ended.
        """
        causes: dict[str, int] = {}
        for stream, fate in self._fates(apart=alive is not None):
            causes[MISSING] = causes.get(MISSING, 0) + fate.missing
            if fate.ahead and stream == LEFT:
                causes[OTHERS] = fate.ahead
            elif fate.ahead and alive is not None and stream not in alive:
                cause = f"sent and never received; its sampler: {how(stream)[:80]}"
                cause = cause if cause in causes or len(causes) < MOST_CAUSES else OTHERS
                causes[cause] = causes.get(cause, 0) + fate.ahead
        return {cause: count for cause, count in causes.items() if count}

    def _fates(self, *, apart: bool) -> Iterator[tuple[str, Fate]]:
        """What became of those streams that have left, and of the others, each ``apart`` or all as one. Only
        those that have changed since the last time are looked at.
        """
        for stream in self._changed:
            self._sums.add(self._known.get(stream, Fate()), -1)
            self._known[stream] = fate = self._fate(stream)
            self._sums.add(fate)
        self._changed = {}
        yield LEFT, self.past
        yield from self._known.items() if apart else ((ALL, self._sums),)

    def _fate(self, stream: str) -> Fate:
        fate, position = Fate(), 0
        for receipt in (streams[stream] for streams in self.takers.values() if stream in streams):
            # An earlier incarnation of the learner died with these or before it reported them.
            fate.missing += max(0, receipt.first - position)
            received, refused, lost = receipt.beyond(position)
            fate.received += received
            fate.refused += refused
            fate.missing += lost
            position = max(position, receipt.last)
        left = max(0, self.pushed.get(stream, 0) - fate.received)
        fate.refused = min(fate.refused, left)
        fate.missing = min(fate.missing, left - fate.refused)
        fate.ahead = left - fate.refused - fate.missing
        return fate
