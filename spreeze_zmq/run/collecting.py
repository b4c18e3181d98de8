"""The broker's side of checkpoints: it asks the learners for their parts and completes what they wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.errors import CheckpointError, WireError
from spreeze_zmq.run.checkpoint import Part, complete, prune

CHECKPOINTS_KEPT = 2


class Checkpoints:
    """The checkpoint under way.

    Args:
        folder: of the run's checkpoints.
        num_parts: learners that write one.
        interval_s: from one checkpoint to the next.

    Attributes:
        asked: the folder's name of the checkpoint under way; empty where none is.
        next_s: when the next one is due, in seconds since the run began.
    """

    def __init__(self, folder: Path, num_parts: int, interval_s: float) -> None:
        self._folder, self._num_parts, self._interval_s = folder, num_parts, interval_s
        self._parts: dict[str, list[Part]] = {}
        self.asked = ""
        self.next_s = interval_s

    def begin(self, env_steps: int, now_s: float) -> str:
        """Begin one, and give up one whose parts have not all come; returns its folder's name."""
        self._parts, self.asked = {}, f"{env_steps:012d}-{int(now_s * 1000):09d}"
        self.next_s = now_s + self._interval_s
        return self.asked

    def take(self, role: str, fields: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        """Enter the part that a learner has written; with the last one the checkpoint is complete.

        Args:
            role: of the learner.
            fields: of its message ``part``; one that is late, or of a checkpoint never asked for, is ignored.
            state: what the checkpoint keeps of the run.

        Returns:
            Whether it is complete.

        Raises:
            WireError: the part is not on the disk as its learner says.
        """
        if not self.asked or fields["folder"] != self.asked:
            return False
        try:
            self._parts[role] = [Part.from_dict(file) for file in fields["part"].values()]
            if len(self._parts) < self._num_parts:
                return False
            complete(
                self._folder / self.asked, [file for files in self._parts.values() for file in files], state
            )
        except (CheckpointError, KeyError, TypeError, ValueError) as error:
            raise WireError("bad_part", f"{type(error).__name__}: {error}") from error
        prune(self._folder, keep=CHECKPOINTS_KEPT)
        self._parts, self.asked = {}, ""
        return True
