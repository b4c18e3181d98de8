"""The names of processes on other machines: the head holds their locks, so that nobody takes them here."""

from __future__ import annotations

from pathlib import Path

from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.wire.channels import Claim


class Leases:
    """The locks of names, in which the broker reads which life has a name.

    Args:
        folder: where processes claim their names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claims: dict[str, Claim] = {}
        self._lives: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Hold a name from now on; False if another process has it."""
        if name not in self._claims:
            try:
                self._claims[name] = Claim.take(self._folder / name)
            except ChannelError:
                return False
            self.note(name, 0)
        return True

    def note(self, name: str, incarnation: int) -> None:
        """Write down which life has a name; 0 for one that is not known yet."""
        if name in self._claims and self._lives.get(name) != incarnation:
            self._lives[name] = incarnation
            self._claims[name].lend(incarnation)

    def release(self) -> None:
        """Release all names; all processes have ended."""
        for claim in self._claims.values():
            claim.release()
