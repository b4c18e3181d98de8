"""A recording: a file of all messages that one process receives and sends, in order and with their times.

components/README.md, "Record and replay", describes its bytes.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.patience import make_folder
from spreeze_zmq.wire import Buffer

log = logging.getLogger("spreeze")

MAGIC = b"spreeze recording 1\n"
SUFFIX = ".recording"
#: Most recordings of one process that are kept: the first and the newest ones.
MOST_FILES = 10
#: After the magic: number of bytes of the header, which is JSON.
_HEADER = struct.Struct("<I")
#: An entry: bytes of its rest, nanoseconds, whether the process sent the message, channel, number of frames.
_ENTRY = struct.Struct("<QQ?BH")
_REST = _ENTRY.size - 8


class Entry(NamedTuple):
    """One message of a recording.

    Attributes:
        t_s: seconds since the recording began.
        sent: the process sent it; else it received it.
        channel: name of the channel.
        frames: the frames of the message.
    """

    t_s: float
    sent: bool
    channel: str
    frames: list[bytes]


class RecordingWriter:
    """Writes a recording, each message by one system call: a killed process loses at most the last one.

    Args:
        folder: of the recordings; created if it is missing.
        about: the header: ``name``, ``role``, ``index``, ``incarnation``, ``channels``, ``plan``.
        limit_mb: largest size in 10^6 bytes; later messages are left out.
        mirrored: this process plays the recorded one's peers, so that it receives what that one sends.

    Attributes:
        path: ``NAME.recording``, then ``NAME-2.recording`` and so on for later incarnations; the first and
            the newest of them are kept.
        ended: why it has ended before its process, in one line for people; empty while it goes on.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any], limit_mb: float, *, mirrored: bool = False
    ) -> None:
        self._channels = {name: number for number, name in enumerate(about["channels"])}
        self._left, self._mirrored, self._began_ns = limit_mb * 1e6, mirrored, time.monotonic_ns()
        self._limit_mb, self.ended = limit_mb, ""
        header = json.dumps({**about, "began_s": time.time()}).encode()
        try:
            make_folder(folder, parents=True)
            self.path, self._descriptor = _created(folder, about["name"])
        except OSError as error:
            raise InputError(f"{folder}: no recording can be written there: {error.strerror}") from error
        self._write([MAGIC, _HEADER.pack(len(header)), header])

    def add(self, channel: str, sent: bool, frames: Sequence[Buffer]) -> None:
        """Append one message."""
        if self._left <= 0:
            return
        sizes = [len(frame) for frame in frames]
        rest = _REST + 4 * len(sizes) + sum(sizes)
        if self._left < rest + 8:
            self._end(f"--record-mb {self._limit_mb:g} is reached")
            return
        now_ns = time.monotonic_ns() - self._began_ns
        head = _ENTRY.pack(rest, now_ns, sent != self._mirrored, self._channels[channel], len(sizes))
        self._write([head, struct.pack(f"<{len(sizes)}I", *sizes), *frames])

    def close(self) -> None:
        self._left = 0.0
        os.close(self._descriptor)

    def _write(self, parts: Sequence[Buffer]) -> None:
        num_bytes = sum(map(len, parts))
        try:
            written = os.writev(self._descriptor, parts)
            if written < num_bytes:  # a signal, a full disk, or over 2 GB at once
                rest = memoryview(b"".join(parts))[written:]
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._end(f"{error.strerror}")
            return
        self._left -= num_bytes

    def _end(self, why: str) -> None:
        self._left, self.ended = 0.0, f"{self.path}: {why}: what comes from now on is not recorded"
        log.warning("%s", self.ended)


def _created(folder: Path, name: str) -> tuple[Path, int]:
    """A new file for this incarnation of a process, and its descriptor. Of ever more, some leave."""
    is_one = re.compile(rf"{re.escape(name)}(?:-(\d{{1,9}}))?{re.escape(SUFFIX)}", re.ASCII).fullmatch
    before = {int(found[1] or 1): path for path in folder.iterdir() if (found := is_one(path.name))}
    for number in sorted(before)[1 : 2 - MOST_FILES]:
        before[number].unlink(missing_ok=True)
    for number in itertools.count(max(before, default=0) + 1):
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}{SUFFIX}"
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


class RecordingReader:
    """Reads a recording; omits the last entry if it is incomplete, as that of a killed process may be.

    Attributes:
        path: the file.
        about: the header.
        torn_bytes: size of an incomplete entry at the end, known after all others have been read.

    Raises:
        InputError: the file cannot be read or is not a recording.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.torn_bytes = path, 0
        try:
            self._size = path.stat().st_size
            with path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise InputError(f"{path} is no recording: it does not begin with {MAGIC.decode()!r}")
                (size,) = _HEADER.unpack(file.read(_HEADER.size))
                self.about: dict[str, Any] = json.loads(file.read(min(size, self._size)))
                self._begin = file.tell()
                self._channels: list[str] = list(self.about["channels"])
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: its header is damaged: {error}") from error

    def entries(self) -> Iterator[Entry]:
        """The messages in order.

        Raises:
            InputError: an entry in the middle is damaged.
        """
        at = self._begin
        with self.path.open("rb") as file:
            file.seek(at)
            while (left := self._size - at) > 0:
                if left < _ENTRY.size:
                    break
                rest, t_ns, sent, channel, count = _ENTRY.unpack(file.read(_ENTRY.size))
                if rest + 8 > left:
                    break
                sizes = struct.unpack(f"<{count}I", file.read(4 * count)) if 4 * count < left else ()
                if _REST + 4 * count + sum(sizes) != rest or channel >= len(self._channels):
                    raise InputError(f"{self.path}: the entry at byte {at} is damaged")
                frames = [file.read(size) for size in sizes]
                yield Entry(t_ns / 1e9, sent, self._channels[channel], frames)
                at += rest + 8
        self.torn_bytes = self._size - at
