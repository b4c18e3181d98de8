"""The table of a replay's transitions, preallocated on the learner's device."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.kept_memory import KeptRing, kept_rings
from spreeze_zmq.base.rollout import Rollout, next_observations
from spreeze_zmq.nn.device import Ingestion, Staging, draw_on
from spreeze_zmq.replay.room import MEMORY_SHARE, NoRoom, free_bytes
from spreeze_zmq.replay.saved_ring import Put, read, write


@dataclass(frozen=True)
class Column:
    """One field of a transition: its name, NumPy dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Elements of one transition."""
        return math.prod(self.shape)


class Ring:
    """A preallocated table of transitions that overwrites its oldest rows.

    Columns of one dtype share a tensor ``[capacity, width]``, so that a sample takes one gather per dtype:
    a single one where observations and actions are float32.

    Args:
        capacity: rows.
        columns: the fields of a row.
        device: the device of the table.
        seed: seed of the sampling.
        bytes_beside: bytes per row that the owner keeps elsewhere, for the estimate of the memory.
        settings: numbers that a saved table must share to be loaded, as its layout.

    Raises:
        InputError: the table does not fit in the memory that is free.
    """

    #: Transitions in each row.
    transitions_per_row = 1

    def __init__(
        self,
        capacity: int,
        columns: Sequence[Column],
        device: torch.device | str,
        seed: int,
        bytes_beside: int = 0,
        settings: Mapping[str, float] | None = None,
    ):
        self._bytes_beside, self._settings = bytes_beside, dict(settings or {})
        self.capacity, self.columns = capacity, tuple(columns)
        self.device = torch.device(device)
        self.num_added = self.renumbered = self.num_loaded = 0
        self._places: dict[str, tuple[str, slice]] = {}
        widths: dict[str, int] = {}
        for column in self.columns:
            start = widths.get(column.dtype, 0)
            self._places[column.name] = (column.dtype, slice(start, start + column.width))
            widths[column.dtype] = start + column.width
        self._widths = widths
        self._check_memory()
        self._tables = {
            dtype: torch.empty(capacity, width, dtype=getattr(torch, dtype), device=self.device)
            for dtype, width in widths.items()
        }
        self._kept: KeptRing | None = None
        self._staging, self._ingestion = Staging(self.device), Ingestion(self.device)
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._index = torch.empty(0, dtype=torch.int64, device=self.device)
        self._rows: dict[str, torch.Tensor] = {}
        self._batch: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return self.num_added - self.first

    @property
    def first(self) -> int:
        """Number of the oldest row that may be drawn; rows are numbered in the order in which they came."""
        return self.num_added - self.num_stored

    @property
    def num_stored(self) -> int:
        """Rows of the table that have been written."""
        return min(self.num_added, self.capacity)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the full table and of what its owner keeps beside it."""
        row = sum(np.dtype(dtype).itemsize * width for dtype, width in self._widths.items())
        return self.capacity * (row + self._bytes_beside)

    def _check_memory(self) -> None:
        free = free_bytes(self.device)
        if self.memory_bytes > MEMORY_SHARE * free:
            transitions = self.capacity * self.transitions_per_row
            row = self.memory_bytes // transitions
            raise NoRoom(
                f"a replay of {transitions:,} transitions of {row:,} bytes takes "
                f"{self.memory_bytes / 1e9:.1f} GB, {self.device} has {free / 1e9:.1f} GB free",
                int(MEMORY_SHARE * free) // row,
            )

    def keep_in(self, descriptor: int, beside: int) -> NDArray[np.float64]:
        """Move the empty table, which is on the CPU, into kept memory, and recover the rows there.

        Returns:
            ``[beside]`` numbers of the owner's in the same memory: as an earlier process left them beside its
            rows, else 0.
        """
        rings = self._rings()
        shapes = [*(ring._shapes() for ring in rings), {"float64": (1, beside)}]
        *kept_tables, numbers = kept_rings(descriptor, json.dumps(self._layout()), *shapes)
        for ring, kept in zip(rings, kept_tables, strict=True):
            ring._kept = kept
            ring._tables = {dtype: torch.from_numpy(table) for dtype, table in kept.tables.items()}
            ring.num_added = kept.recovered()
        found: NDArray[np.float64] = numbers.tables["float64"][0]
        if not self.num_added:
            found[:] = 0.0
        return found

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Rows that come inside are recovered from kept memory only once all have come."""
        if self._kept is not None:
            self._kept.fill(whole=False)
        yield
        if self._kept is not None:  # not after an error: what has come is a part
            self._kept.fill(whole=True)

    def _rings(self) -> list[Ring]:
        """This ring, and those that it refers to."""
        return [self]

    def _shapes(self) -> dict[str, tuple[int, int]]:
        """dtype -> rows and width of each table."""
        return {dtype: (self.capacity, width) for dtype, width in self._widths.items()}

    def unfit(self, rollout: Rollout) -> str:
        """Why the observations of a rollout cannot be kept; empty if they can."""
        return ""

    def add(
        self, rollout: Rollout, fields: Mapping[str, NDArray[Any]], last: NDArray[np.intp] | None = None
    ) -> None:
        """Append the transitions of a rollout over the oldest.

        Args:
            rollout: gives the columns ``obs`` and, if there is one, ``next_obs``.
            fields: ``[T, N, *shape]`` for each other column.
            last: ``[T, N]``, the step whose following observation each transition bootstraps from; None for
                its own.
        """
        assert rollout.obs is not None
        fields = {**fields, "obs": rollout.obs[:-1]}
        if "next_obs" in self._places:
            fields["next_obs"] = next_observations(rollout, last)
        self._write_steps(fields)

    def _write_steps(self, fields: Mapping[str, NDArray[Any]]) -> None:
        self.write({name: array.reshape(-1, *array.shape[2:]) for name, array in fields.items()})

    def write(self, fields: Mapping[str, NDArray[Any]]) -> None:
        """Append ``M`` rows over the oldest; ``fields`` has ``[M, *shape]`` for each column."""
        count = len(next(iter(fields.values())))
        kept = min(count, self.capacity)  # of more rows than there is room for, the last remain
        begin = (self.num_added + count - kept) % self.capacity
        split = min(kept, self.capacity - begin)  # the rows after that are at the table's start
        if self._kept is not None:
            self._kept.begin(self.num_added + count)
        spans = ((begin, split, count - kept), (0, kept - split, count - kept + split))
        with self._ingestion.writing():
            for dtype, table in self._tables.items():
                for to, size, first in spans:
                    if size:
                        with self._staging.filling(table[to : to + size]) as rows:
                            for name, (other, place) in self._places.items():
                                if other == dtype:
                                    rows[:, place] = fields[name][first : first + size].reshape(size, -1)
        self.num_added += count
        if self._kept is not None:
            self._kept.end(self.num_added)

    def gather(self, batch_size: int) -> dict[str, torch.Tensor]:
        """``batch_size`` rows drawn uniformly with replacement; the tensors are valid until the next call."""
        assert len(self) > 0, "an empty replay cannot be sampled"
        if self._index.shape[0] != batch_size:
            self._index = torch.empty(batch_size, dtype=torch.int64, device=self.device)
        torch.randint(len(self), (batch_size,), generator=self._generator, out=self._index)
        if len(self) < self.num_stored:
            self._index.add_(self.first).remainder_(self.capacity)
        return self.take(self._index)

    def uniform(self, count: int) -> torch.Tensor:
        """``[count]`` float64 random numbers from 0 to 1, from the generator of the sampling."""
        return torch.rand(count, dtype=torch.float64, generator=self._generator, device=self.device)

    def take(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows ``index`` ``[B]``; the tensors are valid until the next call."""
        if not self._batch or next(iter(self._rows.values())).shape[0] != index.shape[0]:
            self._prepare(index.shape[0])
        with self._ingestion.reading():
            for dtype, table in self._tables.items():
                torch.index_select(table, 0, index, out=self._rows[dtype])
        return self._batch

    def _prepare(self, batch_size: int) -> None:
        self._rows = {
            dtype: table.new_empty(batch_size, table.shape[1]) for dtype, table in self._tables.items()
        }
        for column in self.columns:
            dtype, place = self._places[column.name]
            self._batch[column.name] = self._rows[dtype][:, place].view(batch_size, *column.shape)

    def looked_up(self, name: str, places: NDArray[np.float64]) -> NDArray[Any]:
        """``[M, *shape]``: one column of the rows at ``places`` ``[M]``, from 0 to 1, of all that may be
        drawn; a copy, which leaves the last batch as it is.
        """
        rows = (self.first + (places * len(self)).astype(np.int64)) % self.capacity
        dtype, place = self._places[name]
        with self._ingestion.reading():
            found = self._tables[dtype][:, place].index_select(0, torch.from_numpy(rows).to(self.device))
        return np.asarray(found.cpu().numpy().reshape(len(rows), *self._shape_of(name)))

    def _shape_of(self, name: str) -> tuple[int, ...]:
        return next(column.shape for column in self.columns if column.name == name)

    def random_state(self) -> torch.Tensor:
        """The state of the sampling's generator, uint8."""
        return self._generator.get_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Let the sampling's generator go on from a state of ``random_state()``."""
        draw_on(self._generator, state)

    def streams(self) -> dict[str, torch.Tensor]:
        """Sampler -> what its next rollout shares with its last one; empty where each holds all it needs."""
        return {}

    def go_on(self, streams: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`streams`, after :meth:`load`: the next rollout of each follows the last."""

    def save(self, put: Put, prefix: str = "") -> None:
        """Put the files of ``saved_ring``, whose names begin with ``prefix``."""
        with self._ingestion.reading():
            tables = ((d, table[: self.num_stored].cpu().numpy()) for d, table in self._tables.items())
            write(put, self._layout(), tables, self.random_state().numpy(), self.num_added, prefix)

    def load(self, folder: Path, prefix: str = "") -> None:
        """Continue from ``save``, with the newest rows in a smaller table.

        Raises:
            CheckpointError: a file is missing or broken, or the saved replay has another layout.
        """
        saved = read(folder, self._layout(), self._widths, prefix)
        for to, place in saved.spans(self.capacity):
            for dtype, table in saved.tables.items():
                with self._ingestion.writing():
                    self._tables[dtype][to] = torch.from_numpy(np.array(table[place]))
        self.set_random_state(torch.from_numpy(saved.random_state))
        self.num_loaded, self.renumbered = saved.num_stored, saved.renumbered(self.capacity)
        self.num_added = saved.num_added - self.renumbered
        if self._kept is not None:
            self._kept.end(self.num_added)

    def _layout(self) -> dict[str, Any]:
        """What must agree between a saved replay and this one, in JSON's own types."""
        columns = [[column.name, column.dtype, list(column.shape)] for column in self.columns]
        return {**self._settings, "capacity": self.capacity, "columns": columns}
