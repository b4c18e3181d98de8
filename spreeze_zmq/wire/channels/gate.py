"""A byte that a machine's senders share: whether the receiver elsewhere has room.

Each sender's own queue and the kernel's buffers hold tens of small messages. Where all of them wait for one
connection, what waits in front of the receiver would grow with their number; those that look here before they
make another message wait with none or one each.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_IPC = "ipc://"


class Gate:
    """Open or shut, for all processes of the machine at once; costs a look at the memory."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._memory = mmap.mmap(descriptor, 1)
        finally:
            os.close(descriptor)

    @staticmethod
    def make(endpoint: str) -> None:
        """Make the gate of an ipc endpoint, open, before any of its ends opens."""
        _path(endpoint).write_bytes(b"\0")

    @classmethod
    def at(cls, endpoint: str) -> Gate | None:
        """The gate of an endpoint; None where it has none."""
        return cls(_path(endpoint)) if endpoint.startswith(_IPC) and _path(endpoint).exists() else None

    @property
    def is_shut(self) -> bool:
        """Whether who is about to make a message shall wait."""
        return self._memory[0] != 0

    def shut(self, *, shut: bool) -> None:
        """Shut or open it."""
        self._memory[0] = shut

    def close(self) -> None:
        self._memory.close()


def _path(endpoint: str) -> Path:
    return Path(f"{endpoint.removeprefix(_IPC)}.gate")
