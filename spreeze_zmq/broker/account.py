"""The account of samples, kept at both ends of a channel: produced = received + dropped + in flight.

Samplers count the transitions that they push. Learners count those that they receive, and find gaps from the
stream position in each rollout; a stream is what one incarnation of one sampler pushes. The broker joins both
counts. No term is computed as the remainder of the others, so an error in any term shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, islice

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.broker.rows import row_of

#: Most streams that an account keeps, and most that one report lists.
MOST_STREAMS, REPORTED_STREAMS = 4096, 200
#: Of them, those that nothing was taken of: who sends only what is refused takes no place of a sampler's.
MOST_UNTAKEN = 1024
#: Most incarnations of learners that an account keeps.
MOST_TAKERS = 1000
#: Causes for which transitions were not received, beside the ends of samplers; a summary lists so many.
MISSING = "lost with a learner's earlier process, or on the way to it"
OTHERS = "sent and never received; other samplers"
MOST_CAUSES = 20
#: Upper bound of the size of a lost rollout, as a multiple of the rollout that follows it.
MOST_GROWTH = 64
#: Most transitions that an unreadable rollout may claim to hold.
MOST_AT_ONCE = 1 << 24


@dataclass
class Receipt:
    """What one learner received of one stream, in transitions.

    ``first`` and ``last`` are positions in the stream; ``last`` - ``first`` = received + refused + lost.
    """

    first: int
    last: int
    received: int = 0
    refused: int = 0
    lost: int = 0

    def beyond(self, position: int) -> tuple[int, int, int]:
        """Transitions received, refused and lost beyond a position up to which another taker has counted:
        what both claim counts once.
        """
        claimed = min(max(0, position - self.first), self.last - self.first)
        left = []
        for count in (self.lost, self.refused, self.received):
            left.append(max(0, count - claimed))
            claimed = max(0, claimed - count)
        lost, refused, received = left
        return received, refused, lost

    def fault(self, before: Receipt | None, most: float) -> str:
        """Why it cannot be true, after the one ``before`` of the same taker, if at most ``most`` transitions
        can have been received; empty if it can.
        """
        counted = self.received + self.refused + self.lost
        if min(self.first, self.last, self.received, self.refused, self.lost) < 0:
            return f"it has a number below 0: {asdict(self)}"
        if self.last - self.first != counted:
            return f"it counts {counted} transitions between {self.first} and {self.last}"
        if self.received > most:
            return f"it counts {self.received} received transitions, at most {most} can be"
        if before is not None and (self.first != before.first or self.last < before.last):
            return f"it goes from {self.first} to {self.last}, and went from {before.first} to {before.last}"
        return ""


class Receipts:
    """The learner's end of the account.

    Attributes:
        streams: by name, ordered by the last arrival, the newest last.
        unlisted: names of those that have changed since a report last listed them, the first one first.
    """

    def __init__(self) -> None:
        self.streams: dict[str, Receipt] = {}
        self.unlisted: dict[str, None] = {}
        self._listed: dict[str, None] = {}
        self._sequences: dict[str, int] = {}
        self._unsure: set[str] = set()
        self._untaken: set[str] = set()

    def disorder(self, rollout: Rollout) -> str:
        """Why a rollout cannot follow the last one of its stream; empty if it can."""
        size, produced, name = rollout.num_transitions, rollout.produced, rollout.stream
        if produced < size:
            return f"produced is {produced}, expected at least the {size} transitions of the rollout"
        if name not in self.streams and len(self.streams) >= MOST_STREAMS:
            return f"it begins a stream, and there are {MOST_STREAMS} already"
        at = self.streams[name].last if name in self.streams else 0
        before = self._sequences.get(name, -1)
        missing = rollout.sequence - before - 1 + (name in self._unsure)
        if rollout.sequence <= before:
            return f"sequence is {rollout.sequence}, expected more than {before}"
        if produced - size < at or (missing == 0 and produced - size > at):
            return f"produced is {produced}, expected {at + size}: {size} after {at}"
        if produced - size - at > MOST_GROWTH * size * missing:
            return f"produced is {produced} after {at}, too far for the {missing} missing messages"
        return ""

    def take(self, rollout: Rollout, *, refused: bool = False) -> None:
        """Count a rollout that is in order; ``refused`` if the learner does not use it."""
        start, name = rollout.produced - rollout.num_transitions, rollout.stream
        if not self._may_list(name, taken=not refused):
            return
        stream = self.streams.pop(name) if name in self.streams else Receipt(start, start)
        self.streams[name] = stream
        self._has_changed(name)
        self._sequences[name] = rollout.sequence
        self._unsure.discard(name)
        stream.lost += start - stream.last
        if refused:
            stream.refused += rollout.num_transitions
        else:
            stream.received += rollout.num_transitions
        stream.last = rollout.produced

    def refuse(self, name: str, sequence: int, transitions: int, *, sure: bool) -> None:
        """Count a rollout whose ``produced`` is wrong or unreadable as the next one of its stream.

        Args:
            name: the stream.
            sequence: the rollout's sequence number; a repeated one is ignored.
            transitions: the size that it claims.
            sure: whether that size is proven. If not, a gap may follow.
        """
        known = self._sequences.get(name, -1)
        if sequence <= known or transitions > MOST_AT_ONCE or not self._may_list(name, taken=False):
            return
        stream = self.streams.setdefault(name, Receipt(0, 0))
        self._has_changed(name)
        self._sequences[name] = sequence
        if not sure:
            self._unsure.add(name)
        stream.refused += transitions
        stream.last += transitions

    def drop(self, rollout: Rollout) -> None:
        """Count a received rollout as refused: it became too stale while it waited in the learner."""
        stream = self.streams[rollout.stream]
        stream.received -= rollout.num_transitions
        stream.refused += rollout.num_transitions
        self._has_changed(rollout.stream)

    def to_dict(self) -> dict[str, dict[str, int]]:
        """The ``taken`` of the next report: of very many streams those that have changed for longest without
        being listed, then those listed longest ago, should a report have been lost.
        """
        names = list(islice(chain(self.unlisted, self._listed), REPORTED_STREAMS))
        for name in names:
            self.unlisted.pop(name, None)
            self._listed.pop(name, None)
        self._listed.update(dict.fromkeys(names))
        ordered = self.streams if len(names) == len(self.streams) else names
        return {name: asdict(self.streams[name]) for name in ordered}

    def relist(self) -> None:
        """Have the next reports list all streams, since one that listed some may have been lost."""
        self.unlisted = {**self._listed, **self.unlisted}
        self._listed = {}

    def _may_list(self, name: str, *, taken: bool) -> bool:
        """Whether a stream has a place, or gets one now for a rollout that is ``taken`` or refused."""
        if taken:
            self._untaken.discard(name)
        elif name not in self.streams:
            if len(self._untaken) >= MOST_UNTAKEN or len(self.streams) >= MOST_STREAMS:
                return False
            self._untaken.add(name)
        return True

    def _has_changed(self, name: str) -> None:
        self._listed.pop(name, None)
        self.unlisted.setdefault(name)


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


@dataclass
class SampleAccount:
    """The broker's end: joins the reports of samplers and learners of one channel, across their restarts.

    Attributes:
        pushed: stream -> transitions pushed, from its sampler's last report.
        takers: learner incarnation -> stream -> receipt, oldest incarnation first.
    """

    pushed: dict[str, int] = field(default_factory=dict)
    takers: dict[str, dict[str, Receipt]] = field(default_factory=dict)

    def report_pushed(self, stream: str, transitions: int) -> None:
        """Record how many transitions a sampler has pushed on this channel."""
        if stream in self.pushed or len(self.pushed) < MOST_STREAMS:
            self.pushed[stream] = max(self.pushed.get(stream, 0), transitions)

    def report_taken(
        self, taker: str, streams: Mapping[str, Mapping[str, int]], most: float = math.inf
    ) -> None:
        """Record the receipts by stream of a learner's incarnation ``taker``, which can have received at most
        ``most`` transitions.

        Raises:
            WireError: ``false_account``, one of them cannot be true; none of them is recorded.
        """
        before, receipts = self.takers.get(taker, {}), {}
        for name, values in streams.items():
            receipts[name] = receipt = row_of(Receipt, values)
            if fault := receipt.fault(before.get(name), most):
                raise WireError("false_account", f"what {taker} has taken of {name[:80]!r}: {fault}")
        known = self.takers.setdefault(taker, {})
        if len(self.takers) > MOST_TAKERS:
            del self.takers[next(iter(self.takers))]
        for name, receipt in receipts.items():
            if name in known or len(known) < MOST_STREAMS:
                known[name] = receipt

    def totals(self, alive: Collection[str] | None = None) -> Samples:
        """Sum the account.

        Args:
            alive: None while the run goes on. At the end, when the learners have drained their channels, the
                streams of living samplers: what did not arrive from any other stream counts as dropped.
        """
        sums = Samples()
        for stream, fate in self._fates():
            is_under_way = alive is None or stream in alive
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
        for stream, fate in self._fates():
            causes[MISSING] = causes.get(MISSING, 0) + fate.missing
            if fate.ahead and alive is not None and stream not in alive:
                cause = f"sent and never received; its sampler: {how(stream)[:80]}"
                cause = cause if cause in causes or len(causes) < MOST_CAUSES else OTHERS
                causes[cause] = causes.get(cause, 0) + fate.ahead
        return {cause: count for cause, count in causes.items() if count}

    def _fates(self) -> Iterator[tuple[str, Fate]]:
        """What became of each stream."""
        for stream in self.pushed.keys() | {name for streams in self.takers.values() for name in streams}:
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
            yield stream, fate
