"""Where the lines of a journal are, by kind and time: a reader parses only those that it needs."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.journal import LONGEST_LINE, lines_of, object_of, open_journal, recent_of, time_of

_NUMBER = rb"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
#: A line as it is written: its kind at the end, its time before that or, of a status, at the beginning.
_END = re.compile(rb'(?:"t_s": ' + _NUMBER + rb', )?"kind": "(\w+)"\}\s*$')
_BEGIN = re.compile(rb'\{"t_s": ' + _NUMBER + rb", ")
_TAIL = 120


class JournalLines:
    """The lines of a journal and of its recent ones; a context manager, which holds the files.

    Args:
        path: the journal; where there is no such file there are no lines.
        kinds: of the lines that are found.
    """

    def __init__(self, path: Path, kinds: Collection[str]) -> None:
        self._files: list[BinaryIO] = []
        self._times = {kind: array("d") for kind in kinds}
        self._places = {kind: array("q") for kind in kinds}
        for each in (path, recent_of(path)):
            if (file := open_journal(each)) is not None:
                self._files.append(file)
                self._find(len(self._files) - 1)

    def __enter__(self) -> JournalLines:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def _find(self, number: int) -> None:
        words = [f'"{kind}"'.encode() for kind in self._times]
        place = 0
        for line in lines_of(self._files[number]):
            end = _END.search(line, max(0, len(line) - _TAIL))
            found = end and (end[1] or ((begin := _BEGIN.match(line)) and begin[1]))
            if end and found:
                self._add(end[2].decode(), float(found), 2 * place + number)
            elif any(word in line for word in words):
                fields = object_of(line) or {}
                if (t_s := time_of(fields)) is not None:
                    self._add(str(fields.get("kind")), t_s, 2 * place + number)
            place += len(line)

    def _add(self, kind: str, t_s: float, place: int) -> None:
        if kind in self._times:
            self._times[kind].append(t_s)
            self._places[kind].append(place)

    def read(self, kind: str, most: int = 0, until_s: float = np.inf) -> Iterator[dict[str, Any]]:
        """The objects of a kind, the oldest first, without torn lines.

        Args:
            kind: one of those that were looked for.
            most: at most this number, evenly apart in time and with the last one; 0 for all.
            until_s: none of a later time.
        """
        times, places = np.array(self._times[kind]), np.array(self._places[kind])
        order = np.argsort(times, kind="stable")
        order = order[times[order] <= until_s]
        if most:
            order = order[_spread(times[order], most)]
        for place in places[order].tolist():
            file = self._files[place % 2]
            file.seek(place // 2)
            fields = object_of(file.readline(LONGEST_LINE))
            if fields is not None and fields.get("kind") == kind:
                yield fields


def _spread(times: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Indices of at most so many of these times, which rise, evenly apart and with the last one."""
    if len(times) <= most:
        return np.arange(len(times))
    span = times[-1] - times[0]
    if not 0 < span < np.inf:
        return np.arange(len(times) - most, len(times))
    before_end = np.minimum((times[-1] - times) / (span / most), most - 1).astype(np.int64)
    return np.flatnonzero(np.append(before_end[:-1] != before_end[1:], True))
