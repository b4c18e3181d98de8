"""Version numbers of the published policies; no number is used twice in a run."""

from __future__ import annotations

import os
from pathlib import Path


class Versions:
    """The version of the newest policy, across restarts of the process that publishes it.

    A rollout names its policy by this number alone, and may arrive after the process that made the policy has
    died. A restarted process that counted on from its checkpoint would reuse numbers that rollouts under way
    carry, and their age would be unknown. The last number is therefore kept in a file, which survives a kill.

    Args:
        path: of the file, in a folder that exists as long as the run.
        begin: version of the first policy of the run.

    Attributes:
        newest: version of the policy published last, or to be published first.
        first: the first version of this process.
        first_life: whether no earlier process has published in this run.
    """

    def __init__(self, path: Path, begin: int = 0) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        given = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        self.first_life = given == 0
        # Version 0 stands for random actions and may be published again; no other version may.
        self.newest = self.first = given + 1 if given else begin
        self._keep()

    @property
    def since_first(self) -> int:
        """Number of new versions of this process after its first."""
        return self.newest - self.first

    def restore(self, version: int) -> None:
        """Continue from a checkpoint's ``version``, or from a later one that has been published since."""
        self.newest = self.first = max(self.newest, version)
        self._keep()

    def advance(self) -> None:
        """Give the next policy a new version."""
        self.newest += 1
        self._keep()

    def _keep(self) -> None:
        os.pwrite(self._descriptor, self.newest.to_bytes(8, "little"), 0)
