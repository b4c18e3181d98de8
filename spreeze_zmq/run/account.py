"""The account of samples, kept at both ends of a channel: produced = received + dropped + in flight.

Samplers count the transitions that they push. Learners count those that they receive, and find gaps by the
stream position in each rollout. The broker joins both. No term is computed as the remainder of the others, so
an error in any of them shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import Any

from spreeze_zmq.rollout import Rollout

#: Incarnations of samplers that an account distinguishes, and those that a report lists.
MOST_STREAMS, REPORTED_STREAMS = 4096, 200
#: Incarnations of learners that an account keeps.
MOST_TAKERS = 1000
#: Upper bound of the size of a lost rollout, as a multiple of the one that came after it.
MOST_GROWTH = 64
#: Transitions that a rollout is believed to hold where its arrays do not prove it.
MOST_AT_ONCE = 1 << 24


@dataclass
class Receipt:
    """One learner's part of one stream (one incarnation of one sampler); all in transitions.

    ``first`` and ``last`` are positions in the stream; all between them is received, refused or lost.
    """

    first: int
    last: int
    received: int = 0
    refused: int = 0
    lost: int = 0


_RECEIPT = tuple(field.name for field in fields(Receipt))


class Receipts:
    """The learner's end of the account; the stream that a rollout came from last stands last."""

    def __init__(self) -> None:
        self.streams: dict[str, Receipt] = {}
        self._sequences: dict[str, int] = {}
        self._unsure: set[str] = set()

    def disorder(self, rollout: Rollout) -> str:
        """Why a rollout does not follow the last one of its stream; empty if it does."""
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
        """Enter a rollout that is in order; a ``refused`` one is too stale or has the wrong shape."""
        start, name = rollout.produced - rollout.num_transitions, rollout.stream
        stream = self.streams.pop(name) if name in self.streams else Receipt(start, start)
        self.streams[name] = stream
        self._sequences[name] = rollout.sequence
        self._unsure.discard(name)
        stream.lost += start - stream.last
        if refused:
            stream.refused += rollout.num_transitions
        else:
            stream.received += rollout.num_transitions
        stream.last = rollout.produced

    def refuse(self, name: str, sequence: int, transitions: int, *, sure: bool) -> None:
        """Enter a rollout whose ``produced`` is wrong or unreadable as the next of its stream. Unless its
        size is ``sure``, the rollout after it may begin further on.
        """
        known = self._sequences.get(name, -1)
        if sequence <= known or transitions > MOST_AT_ONCE or len(self.streams) >= MOST_STREAMS:
            return  # a repeated message is entered once
        stream = self.streams.setdefault(name, Receipt(0, 0))
        self._sequences[name] = sequence
        if not sure:
            self._unsure.add(name)
        stream.refused += transitions
        stream.last += transitions

    def drop(self, rollout: Rollout) -> None:
        """Enter as refused a rollout that was received but became too stale while it waited."""
        stream = self.streams[rollout.stream]
        stream.received -= rollout.num_transitions
        stream.refused += rollout.num_transitions

    def to_dict(self) -> dict[str, dict[str, int]]:
        """For the learner's report: the last ``REPORTED_STREAMS``; older figures of others still hold."""
        names = list(islice(reversed(self.streams), REPORTED_STREAMS))
        return {name: asdict(self.streams[name]) for name in reversed(names)}


@dataclass
class Totals:
    """The account of one channel at one moment, in transitions."""

    produced: int = 0
    received: int = 0
    dropped: int = 0
    in_flight: int = 0

    @property
    def adds_up(self) -> bool:
        """Whether the terms are consistent: nothing missing, nothing counted twice."""
        return self.produced == self.received + self.dropped + self.in_flight


@dataclass
class SampleAccount:
    """The broker's end: joins the reports of samplers and learners on one channel, across their restarts.

    Attributes:
        pushed: stream -> transitions pushed, as its sampler last reported.
        takers: learner incarnation -> stream -> receipt, oldest incarnation first.
    """

    pushed: dict[str, int] = field(default_factory=dict)
    takers: dict[str, dict[str, Receipt]] = field(default_factory=dict)

    def report_pushed(self, stream: str, transitions: int) -> None:
        """Enter a sampler's count of the transitions that it pushed on this channel."""
        if stream in self.pushed or len(self.pushed) < MOST_STREAMS:
            self.pushed[stream] = max(self.pushed.get(stream, 0), transitions)

    def report_taken(self, taker: str, streams: Mapping[str, Mapping[str, int]]) -> None:
        """Enter a learner's receipts; ``taker`` names its incarnation."""
        known = self.takers.setdefault(taker, {})
        if len(self.takers) > MOST_TAKERS:
            del self.takers[next(iter(self.takers))]
        for name, receipt in streams.items():
            if name in known or len(known) < MOST_STREAMS:
                known[name] = Receipt(**{key: receipt[key] for key in _RECEIPT})

    def totals(self, alive: Collection[str] | None = None) -> Totals:
        """The account now, or the last one, once the learners have drained their channels and left: then
        transitions that did not arrive are dropped, but for those of the streams whose sampler is ``alive``.
        """
        sums = Totals()
        for stream in self.pushed.keys() | {name for streams in self.takers.values() for name in streams}:
            position = 0
            for receipt in (streams[stream] for streams in self.takers.values() if stream in streams):
                # An earlier incarnation of the learner died with these, or without having reported them.
                sums.dropped += receipt.first - position
                sums.received += receipt.received
                sums.dropped += receipt.refused + receipt.lost
                position = receipt.last
            pushed = max(self.pushed.get(stream, 0), position)
            sums.produced += pushed
            if alive is not None and stream not in alive:
                sums.dropped += pushed - position
            else:
                sums.in_flight += pushed - position
        return sums

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a broker that is restarted."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SampleAccount:
        """Inverse of :meth:`to_dict`."""
        account = cls(dict(state["pushed"]))
        for taker, streams in state["takers"].items():
            account.report_taken(taker, streams)
        return account
