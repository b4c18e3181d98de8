"""Files between a node and the head, over the channel ``nodes``: one after another, in pieces, and never far
ahead of what the other end has written, so that beats are not late on a slow link.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.files import TEMPORARY, replacing
from spreeze_zmq.base.patience import BETWEEN_BEATS_S, patient
from spreeze_zmq.wire import Message

#: One piece, and the most that is under way. A machine is lost after 5 s without a message: a link that takes
#: longer for a piece carries no run.
PIECE_BYTES, WINDOW_BYTES = 256 * 1024, 1024 * 1024
#: A part of a path that may be written.
_PART = re.compile(r"\w[\w.-]{0,99}")


def fits(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path below the run's folder is as one of these patterns, each part as the pattern's."""
    parts = path.split("/")
    return all(map(_PART.fullmatch, parts)) and any(
        len(parts) == len(wanted := pattern.split("/")) and all(map(fnmatchcase, parts, wanted))
        for pattern in patterns
    )


@dataclass
class _Gift:
    """One file on its way out."""

    about: str
    path: str
    file: BinaryIO
    size: int
    sent: int = 0
    taken: int = 0


class Outgoing:
    """The files that this end gives.

    Args:
        send: sends a message to the other end.

    Attributes:
        failed: errand -> why a file of it cannot be read; none of its files is given any more.
    """

    def __init__(self, send: Callable[[Message], object]) -> None:
        self._send = send
        self.failed: dict[str, str] = {}
        self._gifts: deque[_Gift] = deque()

    def give(self, about: str, path: str, file: BinaryIO) -> None:
        """Give an open file, and close it in the end.

        Args:
            about: the errand that it belongs to.
            path: below the run's folder.
            file: is read from its beginning to its present end.
        """
        size = file.seek(0, os.SEEK_END)
        self._gifts.append(_Gift(about, path, file, size))
        file.seek(0)
        self._go_on()

    def holds(self, about: str) -> bool:
        """Whether a file of this errand is still on its way."""
        return any(gift.about == about for gift in self._gifts)

    def hear(self, fields: Mapping[str, Any]) -> None:
        """Note how far the other end is."""
        if self._gifts and (gift := self._gifts[0]).path == fields["path"] and gift.about == fields["about"]:
            gift.taken = fields["end"]
            if gift.taken >= gift.size:
                self._gifts.popleft().file.close()
        self._go_on()

    def close(self) -> None:
        while self._gifts:
            self._gifts.popleft().file.close()

    def _go_on(self) -> None:
        """Send what may be under way of the first file."""
        if not self._gifts:
            return
        gift = self._gifts[0]
        while gift.sent == 0 or (gift.sent < gift.size and gift.sent - gift.taken < WINDOW_BYTES):
            try:
                piece = np.frombuffer(gift.file.read(PIECE_BYTES), np.uint8)
            except OSError as error:
                self._fail(gift.about, f"{gift.path}: {error.strerror}")
                return
            fields = {"about": gift.about, "path": gift.path, "begin": gift.sent, "size": gift.size}
            self._send(Message("piece", fields, {"bytes": piece}))
            gift.sent += len(piece)
            if not len(piece):
                return

    def _fail(self, about: str, why: str) -> None:
        """Give no file of an errand any more, and go on with the next one."""
        self.failed[about] = why
        for gift in [gift for gift in self._gifts if gift.about == about]:
            gift.file.close()
            self._gifts.remove(gift)
        self._go_on()


class Incoming:
    """The files that this end takes, one at a time.

    Args:
        root: the run's folder.
        send: sends a message to the other end.
        may: whether a path may be written for an errand.
    """

    def __init__(
        self, root: Path, send: Callable[[Message], object], may: Callable[[str, str], bool]
    ) -> None:
        self._root, self._send, self._may = root, send, may
        self._file: BinaryIO | None = None
        self._path, self._passed_over = "", ""

    def hear(self, fields: Mapping[str, Any], piece: NDArray[np.uint8]) -> None:
        """Write a piece. The whole file takes its place at once, safe from a power failure.

        Raises:
            WireError: such a file may not be written, or the piece is not the next one; the rest of the file
                is passed over.
            OSError: it cannot be written, and is passed over.
        """
        about, path, begin, size = (fields[name] for name in ("about", "path", "begin", "size"))
        if begin and path == self._passed_over:
            return
        end = size
        try:
            self._write(about, path, begin, piece)
            if (written := begin + len(piece)) >= size:
                self._finish()
            else:
                end = written
        except (OSError, WireError) as error:
            self.close()
            self._passed_over = path
            if isinstance(error, OSError):
                error.filename = error.filename or str(self._root / path)
            raise
        finally:
            self._send(Message("taken", {"about": about, "path": path, "end": end}))

    def _write(self, about: str, path: str, begin: int, piece: NDArray[np.uint8]) -> None:
        if begin == 0:
            self.close()
            if not self._may(about, path):
                raise WireError(
                    "wrong_field_type", f"piece.path is {path[:80]!r}, which is not {about[:80]}'s"
                )
            self._path, self._passed_over = path, ""
        elif self._file is None or path != self._path or begin != self._file.tell():
            raise WireError(
                "wrong_field_type", f"piece.begin is {begin}, which is not the end of {path[:80]!r}"
            )
        rest = memoryview(piece.data)

        def write_rest() -> None:
            nonlocal rest
            if self._file is None:
                self._temporary.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._temporary.open("wb", buffering=0)
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]

        # one wait for all of it: nobody is heard meanwhile
        patient(write_rest, self._root / path, BETWEEN_BEATS_S)

    def _finish(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        with replacing(self._root / self._path, sync=True) as whole:
            os.replace(self._temporary, whole)

    @property
    def _temporary(self) -> Path:
        path = self._root / self._path
        return path.with_name(f"{TEMPORARY}in-{path.name}")

    def close(self) -> None:
        """Leave nothing of a file that is not whole."""
        if self._file is not None:
            with suppress(OSError):  # some disks say only now that they are full
                self._file.close()
            self._file = None
            self._temporary.unlink(missing_ok=True)
