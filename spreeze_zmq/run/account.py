"""The account of samples, kept at both ends of a channel: produced = received + dropped + in flight.

A sampler counts what it pushes; a learner counts what it takes and finds what is missing from the positions
that each rollout carries; the broker joins the two. No term is the remainder of the others, so that an error
in any of them
shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spreeze_zmq.rollout import Rollout


@dataclass
class Receipt:
    """What one learner took of one stream (one incarnation of one sampler); all in transitions.

    ``first`` and ``last`` are positions in the stream: everything between them is received, refused or lost.
    Where several learners pull from one channel, ``lost`` holds what others of them have taken too.
    """

    first: int
    last: int
    received: int = 0
    refused: int = 0
    lost: int = 0


class Receipts:
    """The learner's end of the account."""

    def __init__(self) -> None:
        self.streams: dict[str, Receipt] = {}

    def take(self, rollout: Rollout, *, refused: bool = False) -> None:
        """Enter one rollout that came off the channel, trained on or ``refused`` (too stale, of the wrong
        shape).
        """
        start = rollout.produced - rollout.num_transitions
        stream = self.streams.setdefault(f"{rollout.sampler}/{rollout.incarnation}", Receipt(start, start))
        stream.lost += start - stream.last
        if refused:
            stream.refused += rollout.num_transitions
        else:
            stream.received += rollout.num_transitions
        stream.last = rollout.produced

    def drop(self, rollout: Rollout) -> None:
        """A rollout that was taken is refused after all, since it has grown too old while it waited."""
        stream = self.streams[f"{rollout.sampler}/{rollout.incarnation}"]
        stream.received -= rollout.num_transitions
        stream.refused += rollout.num_transitions

    def to_dict(self) -> dict[str, dict[str, int]]:
        """For the learner's report."""
        return {name: asdict(receipt) for name, receipt in self.streams.items()}


@dataclass
class Totals:
    """The account of one channel at one moment, in transitions."""

    produced: int = 0
    received: int = 0
    dropped: int = 0
    in_flight: int = 0

    @property
    def adds_up(self) -> bool:
        """Whether nothing is missing and nothing is counted twice."""
        return self.produced == self.received + self.dropped + self.in_flight


@dataclass
class SampleAccount:
    """The broker's end: joins what samplers and learners report of one channel, over restarts of either.

    Attributes:
        pushed: stream -> transitions pushed, as its sampler last reported.
        closed: streams whose sampler is gone.
        shared: several learners pull from this channel at once, each a part of every stream. What is missing
            to one of them is then no loss while another may have it or still get it.
        takers: learner incarnation -> stream -> receipt, in the order in which the learners lived.
    """

    pushed: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    takers: dict[str, dict[str, Receipt]] = field(default_factory=dict)
    shared: bool = False

    def report_pushed(self, stream: str, transitions: int) -> None:
        """Enter a sampler's own count of what it pushed on this channel."""
        self.pushed[stream] = max(self.pushed.get(stream, 0), transitions)

    def report_taken(self, taker: str, streams: Mapping[str, Mapping[str, int]]) -> None:
        """Enter a learner's receipts; ``taker`` names its incarnation."""
        self.takers[taker] = {name: Receipt(**receipt) for name, receipt in streams.items()}

    def close(self, stream: str) -> None:
        """Note that a sampler is gone: it will push nothing more."""
        self.closed.add(stream)

    def totals(self, *, final: bool = False) -> Totals:
        """The account now. ``final``: the learners have drained their channels and left, so what a dead
        sampler still had under way is lost with it.
        """
        sums = Totals()
        for stream in self.pushed.keys() | {name for streams in self.takers.values() for name in streams}:
            receipts = [streams[stream] for streams in self.takers.values() if stream in streams]
            take = _taken_together if self.shared else _taken_in_turn
            position, missing = take(receipts, sums)
            pushed = max(self.pushed.get(stream, 0), position)
            sums.produced += pushed
            if final and stream in self.closed:
                sums.dropped += pushed - position + missing
            else:
                sums.in_flight += pushed - position + missing
        return sums

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a broker that is restarted."""
        takers = {taker: {n: asdict(r) for n, r in streams.items()} for taker, streams in self.takers.items()}
        return {
            "pushed": self.pushed,
            "closed": sorted(self.closed),
            "takers": takers,
            "shared": self.shared,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SampleAccount:
        """Inverse of :meth:`to_dict`."""
        account = cls(dict(state["pushed"]), set(state["closed"]), shared=state["shared"])
        for taker, streams in state["takers"].items():
            account.report_taken(taker, streams)
        return account


def _taken_in_turn(receipts: Sequence[Receipt], sums: Totals) -> tuple[int, int]:
    """Enter what one learner after the other took of a stream; how far they came, and what may still come."""
    position = 0
    for receipt in receipts:
        # what an earlier incarnation of the learner held when it died, or had not reported yet
        sums.dropped += receipt.first - position
        sums.received += receipt.received
        sums.dropped += receipt.refused + receipt.lost
        position = receipt.last
    return position, 0


def _taken_together(receipts: Sequence[Receipt], sums: Totals) -> tuple[int, int]:
    """The same of learners that share a stream. A hole that is in nobody's receipt may still be under way to
    one of them, and a negative one was counted twice: that is left out, so that the account shows it.
    """
    received = sum(receipt.received for receipt in receipts)
    refused = sum(receipt.refused for receipt in receipts)
    sums.received += received
    sums.dropped += refused
    position = max((receipt.last for receipt in receipts), default=0)
    return position, max(0, position - received - refused)
