"""The learner's end of the account of samples: what it has received of each stream, and what it has lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

from spreeze_zmq.base.rollout import Rollout

#: Most streams that an account keeps, and most that one report lists.
MOST_STREAMS, REPORTED_STREAMS = 4096, 150
#: Of them, those that nothing was taken of: who sends only what is refused takes no place of a sampler's.
MOST_UNTAKEN = 1024
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

    def then(self, later: Receipt) -> Receipt:
        """Both as one: of this taker, and of the next one, where what lies between them is lost."""
        received, refused, lost = later.beyond(self.last)
        return Receipt(
            self.first,
            max(self.last, later.last),
            self.received + received,
            self.refused + refused,
            self.lost + lost + max(0, later.first - self.last),
        )

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
        self._lives = Followed()

    def disorder(self, rollout: Rollout) -> str:
        """Why a rollout cannot follow the last one of its stream; empty if it can."""
        size, produced, name = rollout.num_transitions, rollout.produced, rollout.stream
        if produced < size:
            return f"produced is {produced}, expected at least the {size} transitions of the rollout"
        if name not in self.streams and len(self.streams) >= MOST_STREAMS and self._dead is None:
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
        self._lives.take(name)
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
        if name not in self.streams:
            self.streams[name] = Receipt(0, 0)
            self._lives.take(name)
        stream = self.streams[name]
        self._has_changed(name)
        self._sequences[name] = sequence
        if not sure:
            self._unsure.add(name)
        stream.refused += transitions
        stream.last += transitions

    def drop(self, rollout: Rollout) -> None:
        """Count a received rollout as refused: it became too stale while it waited in the learner."""
        if (stream := self.streams.get(rollout.stream)) is None:
            return
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
            if name not in self.streams and len(self.streams) >= MOST_STREAMS and (dead := self._dead):
                self._forget(dead)
            self._untaken.discard(name)
        elif name not in self.streams:
            if len(self._untaken) >= MOST_UNTAKEN or len(self.streams) >= MOST_STREAMS:
                return False
            self._untaken.add(name)
        return True

    @property
    def _dead(self) -> str | None:
        """The first stream of those whose sampler has begun another one since, as far as reports have listed
        it.
        """
        return next((name for name in self._lives.followed if name not in self.unlisted), None)

    def _forget(self, name: str) -> None:
        del self.streams[name]
        for kept in (self._listed, self._sequences):
            kept.pop(name, None)
        self._lives.forget(name)
        self._unsure.discard(name)
        self._untaken.discard(name)

    def _has_changed(self, name: str) -> None:
        self._listed.pop(name, None)
        self.unlisted.setdefault(name)


class Followed:
    """Which of many streams, ``NAME/LIFE``, another one of their sampler has followed: a name has one life at
    a time. No call walks over all of them.

    Attributes:
        followed: those streams, the first one first.
    """

    def __init__(self) -> None:
        self.followed: dict[str, None] = {}
        self._newest: dict[str, str] = {}

    def take(self, name: str) -> None:
        """Note that a stream has begun, or goes on."""
        sampler = name.partition("/")[0]
        if (before := self._newest.get(sampler, name)) != name:
            self.followed[before] = None
        self._newest[sampler] = name
        self.followed.pop(name, None)

    def forget(self, name: str) -> None:
        """Drop a stream."""
        self.followed.pop(name, None)
        if self._newest.get(sampler := name.partition("/")[0]) == name:
            del self._newest[sampler]


def superseded(streams: Mapping[str, Any]) -> Iterator[str]:
    """The streams whose sampler has a later one among these: a name has one life at a time, ``NAME/LIFE``."""
    newest = {name.partition("/")[0]: name for name in streams}
    yield from (name for name in streams if newest[name.partition("/")[0]] != name)
