"""The account of samples, kept at both ends of a channel: produced = received + dropped + in flight.

Samplers count the transitions that they push. Learners count those that they receive, and find gaps by the
stream position in each rollout. The broker joins both. No term is computed as the remainder of the others, so
an error in any of them shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spreeze_zmq.rollout import Rollout


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


class Receipts:
    """The learner's end of the account."""

    def __init__(self) -> None:
        self.streams: dict[str, Receipt] = {}

    def take(self, rollout: Rollout, *, refused: bool = False) -> None:
        """Enter a rollout from the channel; a ``refused`` one is too stale or has the wrong shape."""
        start = rollout.produced - rollout.num_transitions
        stream = self.streams.setdefault(f"{rollout.sampler}/{rollout.incarnation}", Receipt(start, start))
        stream.lost += start - stream.last
        if refused:
            stream.refused += rollout.num_transitions
        else:
            stream.received += rollout.num_transitions
        stream.last = rollout.produced

    def drop(self, rollout: Rollout) -> None:
        """Enter as refused a rollout that was received but became too stale while it waited."""
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
        """Whether the terms are consistent: nothing missing, nothing counted twice."""
        return self.produced == self.received + self.dropped + self.in_flight


@dataclass
class SampleAccount:
    """The broker's end: joins the reports of samplers and learners on one channel, across their restarts.

    Attributes:
        pushed: stream -> transitions pushed, as its sampler last reported.
        closed: streams whose sampler is gone.
        takers: learner incarnation -> stream -> receipt, oldest incarnation first.
    """

    pushed: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    takers: dict[str, dict[str, Receipt]] = field(default_factory=dict)

    def report_pushed(self, stream: str, transitions: int) -> None:
        """Enter a sampler's count of the transitions that it pushed on this channel."""
        self.pushed[stream] = max(self.pushed.get(stream, 0), transitions)

    def report_taken(self, taker: str, streams: Mapping[str, Mapping[str, int]]) -> None:
        """Enter a learner's receipts; ``taker`` names its incarnation."""
        self.takers[taker] = {name: Receipt(**receipt) for name, receipt in streams.items()}

    def close(self, stream: str) -> None:
        """Note that a stream's sampler is gone and pushes nothing more."""
        self.closed.add(stream)

    def totals(self, *, final: bool = False) -> Totals:
        """The account now. ``final``: the learners have drained their channels and left, so transitions of a
        closed stream that did not arrive are dropped, not in flight.
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
            if final and stream in self.closed:
                sums.dropped += pushed - position
            else:
                sums.in_flight += pushed - position
        return sums

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a broker that is restarted."""
        return {**asdict(self), "closed": sorted(self.closed)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SampleAccount:
        """Inverse of :meth:`to_dict`."""
        account = cls(dict(state["pushed"]), set(state["closed"]))
        for taker, streams in state["takers"].items():
            account.report_taken(taker, streams)
        return account
