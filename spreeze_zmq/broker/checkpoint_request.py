"""The checkpoint that the broker has asked the learners for: which parts are missing, when it is complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import CheckpointError, WireError
from spreeze_zmq.run.checkpoint import Part, complete, prune

#: Longest time for which the next one waits for one whose parts do not come: those of a replay may have
#: hundreds of gigabytes, or a learner never got the request.
MOST_S = 3600.0


class CheckpointRequest:
    """The checkpoint that the learners are writing, whose manifest follows their parts.

    Args:
        folder: of the run's checkpoints.
        learners: the roles that write parts.
        interval_s: time from one checkpoint to the next.

    Attributes:
        pending: folder name of the checkpoint whose parts are awaited; empty if none is.
        next_s: when the next one is due, in seconds since the run began, if none is awaited then: an interval
            after the last was asked for or, where that took longer, after it was whole (``rest``).
        awaited_until_s: when the pending one is given up.
        refused: why a part of the pending one was refused, which its learner sends no more; empty for none.
        exact: whether a run in order goes on exactly from the last one that is complete.
    """

    def __init__(self, folder: Path, learners: Collection[str], interval_s: float) -> None:
        self._folder, self._learners, self._interval_s = folder, learners, interval_s
        self._parts: dict[str, list[Part]] = {}
        self._counts: dict[str, Mapping[str, float]] = {}
        self.pending, self.refused, self.exact = "", "", False
        self.next_s, self.awaited_until_s = interval_s, 0.0

    def begin(self, env_steps: int, now_s: float) -> str:
        """Begin a checkpoint and return its folder name; one that is still pending is abandoned."""
        self._parts, self._counts, self.refused = {}, {}, ""
        self.pending = f"{env_steps:012d}-{int(now_s * 1000):012d}"
        self.next_s, self.awaited_until_s = now_s + self._interval_s, now_s + MOST_S
        return self.pending

    def is_awaited(self, now_s: float) -> bool:
        """Whether parts of the pending one are missing, and still expected."""
        return bool(self.pending) and now_s < self.awaited_until_s

    def rest(self, now_s: float) -> None:
        """Have learners train for a whole interval behind one that has taken longer than that."""
        if now_s >= self.next_s:
            self.next_s = now_s + self._interval_s

    @property
    def missing(self) -> list[str]:
        """The learners whose parts of the pending checkpoint have not come, or are not as described."""
        return [role for role in self._learners if self.pending and role not in self._parts]

    def take(self, role: str, fields: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        """Record a learner's ``part`` message; the last one completes the checkpoint, whose folder's name is
        returned then, else "". Of a checkpoint with a part that is refused no other is awaited.

        Args:
            role: of the learner.
            fields: of its message; ignored unless it is for the pending checkpoint.
            state: what the manifest keeps about the run; its ``counts`` are those of the parts where these
                have them, and ``exact`` says that all have.

        Raises:
            WireError: the message is malformed, or the part is not on the disk as described.
        """
        if not self.pending or fields["folder"] != self.pending:
            return ""
        try:
            self._parts[role] = [Part.from_dict(file) for file in fields["part"].values()]
            self._counts[role] = fields.get("counts", {})
            if self.missing:
                return ""
            parts = [file for files in self._parts.values() for file in files]
            complete(self._folder / self.pending, parts, self._as_of_parts(state))
        except (CheckpointError, KeyError, TypeError, ValueError) as error:
            self._parts.pop(role, None)
            self.awaited_until_s, self.refused = 0.0, f"{type(error).__name__}: {error}"
            raise WireError("bad_part", self.refused) from error
        self.exact = all(self._counts.values())
        prune(self._folder)
        self._parts, done, self.pending = {}, self.pending, ""
        return done

    def _as_of_parts(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state with the counts of the parts, as far as it has such counts."""
        if not all(self._counts.values()):
            return dict(state)
        told = {name: count for counts in self._counts.values() for name, count in counts.items()}
        counts = {name: _whole(told.get(name, count)) for name, count in state["counts"].items()}
        return {**state, "counts": counts, "exact": True}


def _whole(count: float) -> float:
    return int(count) if float(count).is_integer() else count
