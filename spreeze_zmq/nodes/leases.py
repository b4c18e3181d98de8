"""The names of processes on other machines: the head holds their locks, so that nobody takes them here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.wire.channels import Claim

#: A name is not leased again for this time after its process has ended: what that sent may be on its way, and
#: a machine that was given up ends its processes itself.
REST_S = 60.0


class Leases:
    """The locks of names, in which the broker reads which life has a name.

    Args:
        folder: where processes claim their names.
        clock: monotonic seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._ended_s: dict[str, float] = {}
        self._claims: dict[str, Claim] = {}
        self._begun: set[str] = set()
        self._lives: dict[str, int] = {}

    def lease(self, new: Iterator[str], lives: Callable[[str], bool]) -> str:
        """Hold a name for a process that is about to start: one whose last process has ended long ago, since
        the account of samples has places for a limited number of names, else a new one.

        Args:
            new: names that were never leased.
            lives: whether a process still has a name.

        Raises:
            ChannelError: as :meth:`take`.
        """
        now_s = self._clock()
        for name, ended_s in self._ended_s.items():
            self._ended_s[name] = math.inf if lives(name) else min(ended_s, now_s)
        rested = (name for name, ended_s in self._ended_s.items() if now_s - ended_s >= REST_S)
        name = next(rested, "") or next(filter(self.take, new))
        self._ended_s[name] = math.inf
        return name

    def take(self, name: str) -> bool:
        """Hold a name from now on; False if another process has it.

        Raises:
            ChannelError: its lock cannot be written, nor that of any other name: no file is left, perhaps.
        """
        if name not in self._claims:
            try:
                self._claims[name] = Claim.take(self._folder / name)
            except ChannelError as error:
                if error.__cause__ is not None:
                    raise
                return False
            self.note(name, 0)
        return True

    def begin(self, name: str) -> bool:
        """Note that a process is about to start; returns whether another one has had its name, on whichever
        machine.
        """
        self.note(name, 0)
        claim, again = self._claims.get(name), name in self._begun
        self._begun.add(name)
        return again or (claim is not None and claim.had_another)

    def note(self, name: str, incarnation: int) -> None:
        """Write down which life has a name; 0 for one that is not known yet."""
        if name in self._claims and self._lives.get(name) != incarnation:
            self._lives[name] = incarnation
            self._claims[name].lend(incarnation)

    def release(self) -> None:
        """Release all names; all processes have ended."""
        for claim in self._claims.values():
            claim.release()
