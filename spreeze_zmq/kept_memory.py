"""Memory that outlives its process: the launcher holds an anonymous file for each learner's replay.

A learner that is started again after a crash finds the transitions of its predecessor there.
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

#: Names the descriptor of a process's kept memory.
VARIABLE = "SPREEZE_KEPT_MEMORY"


def create(name: str) -> int:
    """A descriptor of new memory, empty and of no size."""
    return os.memfd_create(f"spreeze-{name}")


def inherited() -> int | None:
    """The descriptor of this process's kept memory; None where it has none, as when started by hand."""
    descriptor = os.environ.get(VARIABLE)
    return None if descriptor is None else int(descriptor)


def is_new(descriptor: int) -> bool:
    """Whether the memory has never been used; true at the first call alone."""
    new = os.fstat(descriptor).st_size == 0
    if new:
        os.ftruncate(descriptor, 1)
    return new


def held_bytes() -> int:
    """Bytes of the machine's memory that this process's kept memory takes already."""
    descriptor = inherited()
    return 0 if descriptor is None else 512 * os.fstat(descriptor).st_blocks


def kept_rings(descriptor: int, layout: str, *shapes: Mapping[str, tuple[int, int]]) -> list[KeptRing]:
    """Rings in one memory, one after another.

    Args:
        descriptor: of the memory; what another layout has left there is discarded.
        layout: describes the rows.
        shapes: of each ring: dtype -> rows and width; all have as many rows.
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
    """Of a ring: a page for its header, and each table on pages of its own."""
    tables = (rows * width * np.dtype(dtype).itemsize for dtype, (rows, width) in shapes.items())
    return mmap.PAGESIZE + sum(map(_whole_pages, tables))


class KeptRing:
    """Tables that stay valid where their writer is killed within a write. Row ``i``, counted from the first
    one ever appended, is at ``i`` modulo the number of rows.

    Args:
        memory: holds it.
        begin: at which byte, the first of a page.
        layout: describes the rows.
        shapes: dtype -> rows and width.

    Attributes:
        tables: dtype -> ``[rows, width]``.
    """

    def __init__(
        self, memory: mmap.mmap, begin: int, layout: str, shapes: Mapping[str, tuple[int, int]]
    ) -> None:
        self.tables: dict[str, NDArray[Any]] = {}
        place = begin + mmap.PAGESIZE
        for dtype, (rows, width) in shapes.items():
            table = np.frombuffer(memory, dtype, rows * width, place).reshape(rows, width)
            self.tables[dtype], place = table, place + _whole_pages(table.nbytes)
        self._rows = min(rows for rows, _ in shapes.values())
        # Layout, rows begun, rows written: all rows are whole while the last two agree.
        self._header = np.frombuffer(memory, np.int64, 3, begin)
        if self._header[0] != (crc := zlib.crc32(layout.encode())):
            self._header[:] = 0, 0, 0
            self._header[0] = crc

    def begin(self, rows: int) -> None:
        """Mark a write as begun, after which the table has ``rows`` rows."""
        self._header[1] = rows

    def end(self, rows: int) -> None:
        """Mark it as done; without ``begin``, the tables were filled in another way."""
        self._header[1:] = rows

    def recovered(self) -> int:
        """The number of rows that an earlier process has appended. Rows of a write that it did not finish are
        left out; where they overwrote older rows, copies of the newest whole rows replace them.
        """
        _, begun, written = self._header.tolist()
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
