"""``metrics.jsonl``: every measurement and decision, one JSON object per line, oldest first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.metrics.plain import plain


class Journal:
    """Appends to the journal of a run; each line is flushed to the system.

    Args:
        path: the file; an existing one is continued on a new line, even if a killed process left half of one.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        size = self._file.seek(0, 2)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def write(self, kind: str, t_s: float, fields: Mapping[str, Any]) -> None:
        """Write one line: ``t_s`` in seconds since the run began, ``kind``, the fields; NaN becomes null."""
        line = json.dumps(plain({**fields, "t_s": round(t_s, 3), "kind": kind}), allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a journal, oldest first, without torn lines."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if isinstance(fields, dict):
                yield fields
