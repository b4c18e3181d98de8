"""The version of the policy published last: a file in the folder of sockets, which survives a kill."""

from __future__ import annotations

import os
from pathlib import Path

from spreeze_zmq.base.patience import patient

#: In the folder of sockets: the number in 8 bytes, little-endian.
VERSION_FILE = "policy.version"


class VersionFile:
    """The file of one run on one machine, made if missing.

    Args:
        sockets: the folder of sockets, which exists as long as the run.
    """

    def __init__(self, sockets: Path) -> None:
        self._path = sockets / VERSION_FILE
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """The newest version; 0 before the first."""
        return int.from_bytes(os.pread(self._descriptor, 8, 0), "little")

    def write(self, version: int) -> None:
        """Note the version that is newest now; waits while the disk of sockets is full."""
        patient(lambda: os.pwrite(self._descriptor, version.to_bytes(8, "little"), 0), self._path)

    def raise_to(self, version: int) -> None:
        """Write a version unless a later one is there."""
        if version > self.read():
            self.write(version)

    def close(self) -> None:
        os.close(self._descriptor)


def newest_version(sockets: Path) -> int | None:
    """The newest version; None where there is no file, as on a machine without the process that publishes."""
    path = sockets / VERSION_FILE
    return int.from_bytes(path.read_bytes()[:8], "little") if path.exists() else None
