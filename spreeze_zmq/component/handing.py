"""The files that a process writes into the run's folder, and those that it reads there. On another machine
they are handed to the head before the reports that speak of them, and fetched from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import ask_for, failure, hand_over
from spreeze_zmq.wire import Message

log = logging.getLogger("spreeze")

#: Longest wait for the head at the end of a process, and for files that it sends.
LEAVE_S, FETCH_S = 4.0, 300.0
_LOOK_S = 0.02


class Handing:
    """What one process hands over and asks for.

    Args:
        folder: the run's, on this machine.
        process: the name of this process.
        send: sends a message to the broker.
        breathe: called again and again while files are copied, which may take minutes.

    Attributes:
        is_elsewhere: whether the run's own folder is on another machine.
    """

    def __init__(
        self,
        folder: RunFolder,
        process: str,
        send: Callable[[Message], None],
        breathe: Callable[[], object],
    ) -> None:
        self._folder, self._process, self._send, self._breathe = folder, process, send, breathe
        self.is_elsewhere = folder.outbox.is_dir()
        self._pending: list[tuple[Path | None, Message | None]] = []

    def send(self, message: Message, files: Iterable[Path] = ()) -> None:
        """Send a message once the head has these files; the messages of one kind keep their order."""
        place = self._hand_over(files) if self.is_elsewhere and files else None
        if place is None and not any(other and other.kind == message.kind for _, other in self._pending):
            self._send(message)
        else:
            self._pending.append((place, message))

    def give(self, files: Iterable[Path]) -> None:
        """Have the head get files of which no message speaks."""
        if self.is_elsewhere:
            self._pending.append((self._hand_over(files), None))

    def _hand_over(self, files: Iterable[Path]) -> Path:
        return hand_over(self._folder, self._process, files, self._breathe)

    def serve(self, *, wait_s: float = 0.0) -> None:
        """Send the messages that are due; those that are not after ``wait_s`` wait on."""
        until_s = time.monotonic() + wait_s
        while self._pending:
            place, message = self._pending[0]
            if place is not None and place.exists():
                if time.monotonic() >= until_s:
                    return
                time.sleep(_LOOK_S)
                continue
            del self._pending[0]
            if message is not None:
                self._send(message)

    def close(self) -> None:
        """Send all that waits, if the head takes the files in time."""
        self.serve(wait_s=LEAVE_S)
        for place, _ in self._pending:
            log.warning("the head has not taken %s in %.0f s", place and place.name, LEAVE_S)

    def fetch(self, word: str, meanwhile: Callable[[], bool]) -> None:
        """Have copies of files of the run brought here, where they are not at hand.

        Args:
            word: which, one of :mod:`spreeze_zmq.run.outbox`.
            meanwhile: called again and again until they are there; returns whether to go on waiting.

        Raises:
            ChannelError: they do not come, or cannot be written here.
        """
        if not self.is_elsewhere:
            return
        place, until_s = ask_for(self._folder, self._process, word), time.monotonic() + FETCH_S
        while place.exists() and meanwhile():
            if (why := failure(place)) is not None:
                raise ChannelError(f"the {word} has not come from the head: {why}")
            if time.monotonic() > until_s:
                raise ChannelError(f"the head has not sent the {word} in {FETCH_S:.0f} s")
            time.sleep(_LOOK_S)
