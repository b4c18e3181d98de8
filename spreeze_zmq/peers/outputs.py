"""Compares the messages that a replayed process sends with those of its recording."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spreeze_zmq.wire import Message

#: The kinds of messages that are compared; others hold the time, the process id and waiting times.
COMPARED = ("rollout", "policy", "critic", "part", "evaluation")
#: Fields that depend on the machine.
UNCOMPARED = {"wall_s"}


@dataclass
class Compared:
    """The messages of one kind on one channel.

    Attributes:
        recorded: number of messages read from the recording so far.
        sent: number of messages that the process has sent.
        same: number of equal pairs.
        first_difference: index of the first unequal pair, from 0, and what differs; empty for none.
        unpaired_recorded: recorded messages that the process has not sent yet.
        unpaired_sent: sent messages that have not been read from the recording yet.
    """

    recorded: int = 0
    sent: int = 0
    same: int = 0
    first_difference: str = ""
    unpaired_recorded: deque[Message] = field(default_factory=deque)
    unpaired_sent: deque[Message] = field(default_factory=deque)

    @property
    def equal(self) -> bool:
        """Whether the process has sent every recorded message; it may send more after the recording's end."""
        return self.recorded == self.same


class Outputs:
    """All messages of one process, compared with its recording.

    Args:
        tolerance: largest difference of two numbers, absolute and relative; 0 compares every bit.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance
        self.by_kind: dict[tuple[str, str], Compared] = {}

    def expect(self, channel: str, message: Message) -> Compared | None:
        """Add a recorded message; returns the comparison of its kind, None where that is not compared."""
        if (compared := self._of(channel, message)) is not None:
            compared.recorded += 1
            compared.unpaired_recorded.append(message)
            self._pair(compared)
        return compared

    def take(self, channel: str, message: Message) -> None:
        """Add a message that the process sent."""
        if (compared := self._of(channel, message)) is not None:
            compared.sent += 1
            compared.unpaired_sent.append(message)
            self._pair(compared)

    @property
    def equal(self) -> bool:
        """Whether nothing differs and nothing is missing."""
        return all(compared.equal for compared in self.by_kind.values())

    def lines(self) -> list[str]:
        """One line for each kind, and one for its first difference."""
        lines = []
        for (channel, kind), compared in self.by_kind.items():
            counts = f"{compared.sent} sent, {compared.recorded} recorded, {compared.same} the same"
            lines.append(f"{kind} on {channel}: {counts}")
            if compared.first_difference:
                lines.append(f"  the first that differs is {compared.first_difference}")
        return lines

    def _of(self, channel: str, message: Message) -> Compared | None:
        if message.kind not in COMPARED:
            return None
        return self.by_kind.setdefault((channel, message.kind), Compared())

    def _pair(self, compared: Compared) -> None:
        while compared.unpaired_recorded and compared.unpaired_sent:
            number = compared.recorded - len(compared.unpaired_recorded)
            pair = compared.unpaired_recorded.popleft(), compared.unpaired_sent.popleft()
            difference = unlike(*pair, self.tolerance)
            compared.same += not difference
            if difference and not compared.first_difference:
                compared.first_difference = f"number {number}: {difference}"


def unlike(recorded: Message, sent: Message, tolerance: float) -> str:
    """The first difference in the fields and arrays of two messages, in one line; empty for none."""
    for name in sorted((recorded.fields.keys() | sent.fields.keys()) - UNCOMPARED):
        ours, theirs = recorded.fields.get(name), sent.fields.get(name)
        if not _alike(ours, theirs, tolerance):
            return f"field {name} is {_short(theirs)}, recorded {_short(ours)}"
    for name in sorted(recorded.arrays.keys() | sent.arrays.keys()):
        if problem := _unlike_arrays(recorded.arrays.get(name), sent.arrays.get(name), tolerance):
            return f"array {name} {problem}"
    return ""


def _alike(ours: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(
            _alike(ours[name], theirs[name], tolerance) for name in ours
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(_alike(*pair, tolerance) for pair in pairs)
    if isinstance(ours, float) and isinstance(theirs, float | int):
        return math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance) or ours != ours != theirs
    return bool(ours == theirs)


def _unlike_arrays(ours: Any, theirs: Any, tolerance: float) -> str:
    if ours is None or theirs is None:
        return "is missing" if theirs is None else "is not in the recording"
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"is {theirs.dtype} {list(theirs.shape)}, recorded {ours.dtype} {list(ours.shape)}"
    if ours.tobytes() == theirs.tobytes():
        return ""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    wrong = ~np.isclose(theirs, ours, rtol=tolerance, atol=tolerance, equal_nan=True)
    if tolerance and not wrong.any():
        return ""
    return f"differs in {wrong.sum()} of {ours.size} numbers, by {np.abs(ours - theirs).max():.3g} at most"


def _short(value: Any) -> str:
    return f"{value!r:.60}"
