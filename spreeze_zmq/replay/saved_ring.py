"""The files of a replay's table in a checkpoint: an npy per dtype, which can be mapped, the state of the
sampling, and ``replay.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import CheckpointError

#: Takes the name of a file of a checkpoint, and what writes it, as ``run.checkpoint.write_part``.
Put = Callable[[str, Callable[[Path], object]], object]


class SavedRing(NamedTuple):
    """A table as it was saved.

    Attributes:
        tables: dtype -> ``[num_stored, width]``, mapped.
        random_state: of the sampling's generator, uint8.
        num_added: rows that have been added to it in all.
    """

    tables: dict[str, NDArray[Any]]
    random_state: NDArray[np.uint8]
    num_added: int

    @property
    def num_stored(self) -> int:
        """Rows that are there."""
        return len(next(iter(self.tables.values())))

    def renumbered(self, capacity: int) -> int:
        """By how much the numbers of rows fall in a table of this capacity: in a larger one, where the first
        rows are gone, since of as many as it has room for none may be missing.
        """
        return self.num_added - self.num_stored if capacity > self.num_stored else 0

    def spans(self, capacity: int) -> Iterator[tuple[slice, slice]]:
        """Yield where the newest rows are put in a table of this capacity, and where they are."""
        size, fall = self.num_stored, self.renumbered(capacity)
        end = self.num_added - fall
        begin = end - min(size, capacity)
        while begin < end:  # up to where one of both tables is at its start again
            to, place = begin % capacity, (begin + fall) % size
            count = min(end - begin, capacity - to, size - place)
            yield slice(to, to + count), slice(place, place + count)
            begin += count


def write(
    put: Put,
    layout: Mapping[str, Any],
    tables: Iterable[tuple[str, NDArray[Any]]],
    random_state: NDArray[np.uint8],
    num_added: int,
    prefix: str = "",
) -> None:
    """Put files that begin with ``prefix``; ``layout`` is what a table must share to be loaded from them, in
    JSON's own types.
    """
    for dtype, table in tables:
        put_array(put, f"{prefix}{dtype}.npy", table)
    put_array(put, f"{prefix}generator.npy", random_state)
    about = json.dumps({**layout, "num_added": num_added}, indent=1)
    put(f"{prefix}replay.json", lambda path: path.write_text(about))


def put_array(put: Put, name: str, array: NDArray[Any]) -> None:
    """Put a file as ``np.save`` writes it, of an array that is not of objects."""
    put(name, partial(_write_array, array))


def _write_array(array: NDArray[Any], path: Path) -> None:
    """Not by ``np.save``: by ``tofile`` it goes through a FILE of C, which does not say that a disk is full,
    and loses the last bytes without an error.
    """
    array = np.asarray(array, order="C")
    with path.open("wb") as file:
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.reshape(-1).view(np.uint8).data)


def read(folder: Path, layout: Mapping[str, Any], widths: Mapping[str, int], prefix: str = "") -> SavedRing:
    """What :func:`write` has written of a table of the same layout.

    Args:
        folder: of the files.
        layout: of the table that loads them; its ``capacity`` may be another one.
        widths: dtype -> width of each of its tables.
        prefix: that the files begin with.

    Raises:
        CheckpointError: a file is missing or broken, or the saved replay has another layout.
    """
    try:
        about = json.loads((folder / f"{prefix}replay.json").read_text())
        num_added = int(about["num_added"])
        size = min(num_added, int(about["capacity"]))
        _check_layout(folder, about, layout)
        tables = {
            dtype: np.load(folder / f"{prefix}{dtype}.npy", mmap_mode="r", allow_pickle=False)
            for dtype in widths
        }
        state = np.load(folder / f"{prefix}generator.npy", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the replay in {folder} cannot be read: {error}") from error
    for dtype, saved in tables.items():
        if saved.shape != (size, widths[dtype]) or saved.dtype != dtype:
            raise CheckpointError(
                f"{folder / prefix}{dtype}.npy holds {saved.dtype} {saved.shape}, expected {size} rows"
            )
    return SavedRing(tables, state, num_added)


def _check_layout(folder: Path, about: Mapping[str, Any], layout: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a table was saved with another layout, whose files may have other names."""
    for name, expected in layout.items():
        if name != "capacity" and about.get(name) != expected:
            raise CheckpointError(
                f"the replay in {folder} was saved with {name} = {about.get(name)}, this run has "
                f"{expected}: resume with the same options and release, or without the replay"
            )
