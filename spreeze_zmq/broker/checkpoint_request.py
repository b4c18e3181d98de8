"""The broker's side of checkpoints: it asks the learners for their parts and writes the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import CheckpointError, WireError
from spreeze_zmq.run.checkpoint import Part, complete, prune


class CheckpointRequest:
    """The checkpoint that the learners are writing.

    Args:
        folder: of the run's checkpoints.
        num_learners: learners that write parts.
        interval_s: time from one checkpoint to the next.

    Attributes:
        pending: folder name of the checkpoint whose parts are awaited; empty if none is.
        next_s: when the next one is due, in seconds since the run began.
    """

    def __init__(self, folder: Path, num_learners: int, interval_s: float) -> None:
        self._folder, self._num_learners, self._interval_s = folder, num_learners, interval_s
        self._parts: dict[str, list[Part]] = {}
        self.pending = ""
        self.next_s = interval_s

    def begin(self, env_steps: int, now_s: float) -> str:
        """Begin a checkpoint and return its folder name; one that is still pending is abandoned."""
        self._parts, self.pending = {}, f"{env_steps:012d}-{int(now_s * 1000):09d}"
        self.next_s = now_s + self._interval_s
        return self.pending

    def take(self, role: str, fields: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Record a learner's ``part`` message; the last one completes the checkpoint.

        Args:
            role: of the learner.
            fields: of its message; ignored unless it is for the pending checkpoint.
            state: what the manifest keeps about the run.

        Raises:
            WireError: the message is malformed, or the part is not on the disk as described.
        """
        if not self.pending or fields["folder"] != self.pending:
            return
        try:
            self._parts[role] = [Part.from_dict(file) for file in fields["part"].values()]
            if len(self._parts) < self._num_learners:
                return
            parts = [file for files in self._parts.values() for file in files]
            complete(self._folder / self.pending, parts, state)
        except (CheckpointError, KeyError, TypeError, ValueError) as error:
            raise WireError("bad_part", f"{type(error).__name__}: {error}") from error
        prune(self._folder)
        self._parts, self.pending = {}, ""
