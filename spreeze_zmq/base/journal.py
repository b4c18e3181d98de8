"""The journal of a run, ``metrics.jsonl``: all that is measured and decided, a JSON object a line.

It only grows, at its end. As a run ages, lines of figures that are too many to be kept are left out of it;
the newest of these are in ``metrics.recent.jsonl``. A reader of both has the last minutes whole.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from spreeze_zmq.base.files import append_to, plain, write_whole
from spreeze_zmq.base.patience import append

#: Kind of the entry where a run goes on from another, and the field of the entries from before it.
RESUMED, INHERITED = "resumed", "inherited"
#: In that entry: the options that were set in the other one and their values.
TURNED = "turned"
#: A file with a longer line is no journal from there on.
LONGEST_LINE = 16 << 20
#: No run lasts this long.
FAR_S = 1e12
#: What is read at once.
READ_BYTES = 1 << 17
#: Beyond this size the older half of the recent lines is dropped.
RECENT_BYTES = 4 << 20


def recent_of(path: Path) -> Path:
    """The file of recent lines beside a journal."""
    return path.with_name(f"{path.stem}.recent{path.suffix}")


class Journal:
    """Appends to the journal of a run; each line is flushed to the system.

    Args:
        path: the file. An existing one continues on a new line, even if a killed process left half of one.

    Raises:
        OSError: it cannot be written, or is a link.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = append_to(path)
        self._size = self._file.seek(0, 2)
        if self._size:
            self._file.seek(self._size - 1)
            if self._file.read(1) != b"\n":
                self._append(b"\n")

    def write(self, kind: str, t_s: float, fields: Mapping[str, Any]) -> None:
        """Write one line: ``t_s`` in seconds since the run began, ``kind``, the fields; NaN becomes null."""
        line = json.dumps(plain({**fields, "t_s": round(t_s, 3), "kind": kind}), allow_nan=False)
        self._append(line.encode() + b"\n")

    def _append(self, line: bytes) -> None:
        append(self._file.fileno(), line, self.path)
        self._size += len(line)

    def close(self) -> None:
        self._file.close()


class Recent(Journal):
    """The recent lines beside a journal: the older half goes where they become more than ``RECENT_BYTES``."""

    def _append(self, line: bytes) -> None:
        super()._append(line)
        if self._size > RECENT_BYTES:
            self._file.seek(self._size // 2)
            self._file.readline()
            rest = self._file.read()
            write_whole(self.path, lambda beside: beside.write_bytes(rest))
            self._file.close()
            self._file, self._size = append_to(self.path), len(rest)


def read_journal(path: Path, kinds: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The objects of a journal and of its recent lines, the oldest first, without torn lines.

    Args:
        path: the journal; where there is no such file there are no lines.
        kinds: only these; others cost next to nothing.
    """
    yield from heapq.merge(*(_objects(each, kinds) for each in (path, recent_of(path))), key=_time)


def open_journal(path: Path) -> BinaryIO | None:
    """A journal's file to read; None where there is none that can be opened, or what is there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # nobody may write to a FIFO
    except OSError:  # also a link to itself, or to a device that is not there
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb", READ_BYTES)
    os.close(descriptor)
    return None


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a journal's file, up to one that is too long to be any or that cannot be read."""
    with contextlib.suppress(OSError):
        while (line := file.readline(LONGEST_LINE)) and len(line) < LONGEST_LINE:
            yield line


def object_of(line: bytes) -> dict[str, Any] | None:
    """The fields of a line; None where it is torn, or no object."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _objects(path: Path, kinds: Collection[str]) -> Iterator[dict[str, Any]]:
    words = [f'"{kind}"'.encode() for kind in kinds]
    if (file := open_journal(path)) is None:
        return
    with file:
        for line in lines_of(file):
            if words and not any(word in line for word in words):
                continue
            fields = object_of(line)
            if fields is not None and (not kinds or fields.get("kind") in kinds):
                yield fields


def time_of(fields: Mapping[str, Any]) -> float | None:
    """The time of an entry; None where it has none."""
    t_s = fields.get("t_s")
    return float(t_s) if isinstance(t_s, int | float) and abs(t_s) < FAR_S else None


def is_look(evaluation: Mapping[str, Any]) -> bool:
    """Whether an evaluation is a first look at its policy. Only these make the learning curve: others are of
    policies that were chosen for a high score, or say again what was said before an evaluator began.
    """
    return not evaluation.get("confirmed") and evaluation.get("rescored") is None


def _time(fields: Mapping[str, Any]) -> float:
    return time_of(fields) or 0.0
