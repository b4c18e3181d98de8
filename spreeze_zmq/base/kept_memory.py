"""Memory that outlives a learner's process: the launcher holds an anonymous file for each replay.

A learner that restarts after a crash finds its predecessor's transitions there.
"""

from __future__ import annotations

import itertools
import mmap
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.files import for_children, memory_file

#: The environment variable with the descriptor of a process's kept memory.
VARIABLE = "SPREEZE_KEPT_MEMORY"


def create(name: str) -> int:
    return for_children(memory_file(f"spreeze-{name}"))


def inherited() -> int | None:
    """The descriptor of this process's kept memory; None where it has none, as when started by hand."""
    descriptor = os.environ.get(VARIABLE)
    return None if descriptor is None else int(descriptor)


def is_new(descriptor: int) -> bool:
    """Whether the memory has never been used; true at the first call only."""
    new = os.fstat(descriptor).st_size == 0
    if new:
        os.ftruncate(descriptor, 1)
    return new


def held_bytes() -> int:
    """Bytes of the machine's memory that this process's kept memory occupies already."""
    descriptor = inherited()
    return 0 if descriptor is None else 512 * os.fstat(descriptor).st_blocks


def kept_rings(descriptor: int, layout: str, *shapes: Mapping[str, tuple[int, int]]) -> list[KeptRing]:
    """Rings in one memory, one after another.

    Args:
        descriptor: of the memory; contents of another layout are discarded.
        layout: describes the rows.
        shapes: for each ring, dtype -> rows and width; all tables of a ring have the same number of rows.
    """
    begins = [0, *itertools.accumulate(map(_bytes_of, shapes))]
    if os.fstat(descriptor).st_size != begins[-1]:
        os.ftruncate(descriptor, 0)
        os.ftruncate(descriptor, begins[-1])
    memory = mmap.mmap(descriptor, begins[-1])
    return [KeptRing(memory, begin, layout, each) for begin, each in zip(begins, shapes, strict=False)]


def _whole_pages(num_bytes: int) -> int:
    return num_bytes + -num_bytes % mmap.PAGESIZE


def _bytes_of(shapes: Mapping[str, tuple[int, int]]) -> int:
    """Size of a ring: a page for its header, then each table on pages of its own."""
    tables = (rows * width * np.dtype(dtype).itemsize for dtype, (rows, width) in shapes.items())
    return mmap.PAGESIZE + sum(map(_whole_pages, tables))


class KeptRing:
    """Tables that stay valid if their writer is killed during a write. Row ``i``, counted from the first one
    ever appended, is at ``i`` modulo the number of rows.

    Args:
        memory: the memory that holds the ring.
        begin: the ring's first byte, at the start of a page.
        layout: describes the rows.
        shapes: dtype -> rows and width.

    Attributes:
        tables: dtype -> ``[rows, width]``.
    """

    def __init__(
        self, memory: mmap.mmap, begin: int, layout: str, shapes: Mapping[str, tuple[int, int]]
    ) -> None:
        self.tables: dict[str, NDArray[Any]] = {}
        offset = begin + mmap.PAGESIZE
        for dtype, (rows, width) in shapes.items():
            table = np.frombuffer(memory, dtype, rows * width, offset).reshape(rows, width)
            self.tables[dtype], offset = table, offset + _whole_pages(table.nbytes)
        self._rows = min(rows for rows, _ in shapes.values())
        # CRC of the layout, rows begun, rows written: all rows are whole while the last two are equal. The
        # fourth is 1 while rows come that are nothing without those after them.
        self._header = np.frombuffer(memory, np.int64, 4, begin)
        if self._header[0] != (crc := zlib.crc32(layout.encode())):
            self._header[:] = crc, 0, 0, 0

    def begin(self, rows: int) -> None:
        """Mark a write as begun, after which ``rows`` rows have been appended in all."""
        self._header[1] = rows

    def end(self, rows: int) -> None:
        """Mark a write as finished, or without ``begin`` that the tables were filled in another way."""
        self._header[1:3] = rows

    def fill(self, *, whole: bool) -> None:
        """Mark all rows as not to be recovered, or once they are ``whole`` as any others."""
        self._header[3] = not whole

    def recovered(self) -> int:
        """The number of rows that an earlier process has appended, without those of an unfinished write.
        Where that write overwrote older rows, copies of the newest whole rows replace them.
        """
        _, begun, written, is_part = self._header.tolist()
        if is_part:
            begun = written = 0
            self.fill(whole=True)
        if begun > self._rows:
            torn = np.arange(max(written, begun - self._rows), begun)
            num_whole = written - (begun - self._rows)
            if num_whole <= 0:
                begun = 0
            for table in self.tables.values() if begun else ():
                table[torn % self._rows] = table[
                    (written - 1 - np.arange(len(torn)) % num_whole) % self._rows
                ]
            written = begun
        self.end(written)
        return int(written)
