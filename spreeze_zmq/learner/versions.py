"""Numbers of the published policies, such that none is given twice in a run."""

from __future__ import annotations

import os
from pathlib import Path


class Versions:
    """The version of the newest policy, over all lives of the process that publishes it.

    A rollout names its policy by this number alone, and may arrive when the life that made the policy is
    over. A second life that counted on from its checkpoint would give numbers again that rollouts under way
    carry, and nobody could tell how old those are. So the last number lies in a file of the run, where a
    killed process leaves it.

    Args:
        path: of the file, in a folder that lives as long as the run.
        begin: version of the first policy of the run.

    Attributes:
        newest: version of the policy published last, or to be published first.
        first: what this life has begun with.
        first_life: whether no earlier life has published in this run.
    """

    def __init__(self, path: Path, begin: int = 0) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        given = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        self.first_life = given == 0
        # The weights of 0, on which nobody acts, are the same in every life; others never are.
        self.newest = self.first = given + 1 if given else begin
        self._keep()

    def restore(self, version: int) -> None:
        """Go on from a checkpoint of this version, or from what has been given since."""
        self.newest = self.first = max(self.newest, version)
        self._keep()

    def advance(self) -> None:
        """The next policy is another one."""
        self.newest += 1
        self._keep()

    def _keep(self) -> None:
        os.pwrite(self._descriptor, self.newest.to_bytes(8, "little"), 0)
