"""Tables of text: as wide as the terminal, and never wrapped where another program reads them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

GAP = 2
#: Columns that wrap get at least this many characters each.
LEAST_WIDTH = 20


def show(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", wrapping: int = 1) -> None:
    """Print rows below headings.

    Args:
        headings: of the columns.
        rows: their cells.
        title: a line above.
        wrapping: how many columns, the last ones, may wrap in a terminal; no other cell is ever cut.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if title:
        print(title)
    print("\n".join(lines(headings, [list(row) for row in rows], width, wrapping)))


def lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, wrapping: int = 1
) -> list[str]:
    """The lines of a table for a terminal of so many columns; None is no limit.

    Where the columns that do not wrap leave too little room, each row is a paragraph that names its cells.
    """
    table = [list(headings), *map(list, rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    if width is not None:
        if _room(widths, width, wrapping) < LEAST_WIDTH * wrapping:
            return [line for row in rows for line in _paragraph(headings, row, width)]
        widths = _shared(widths, width, wrapping)
    return [line for row in table for line in _row(row, widths)]


def _paragraph(headings: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    named = [f"{heading} {cell}" for heading, cell in zip(headings[1:], row[1:], strict=True) if cell]
    indent = " " * GAP
    return [row[0], *textwrap.wrap(", ".join(named), width, initial_indent=indent, subsequent_indent=indent)]


def _room(widths: Sequence[int], width: int, wrapping: int) -> int:
    """What is left for the columns that wrap."""
    return width - sum(widths[: len(widths) - wrapping]) - GAP * (len(widths) - 1)


def _shared(widths: Sequence[int], width: int, wrapping: int) -> list[int]:
    """The widths with the last columns made to fit: each as wide as it is, or an equal share of the room."""
    shared = list(widths)
    room = max(_room(widths, width, wrapping), wrapping)
    for left, column in enumerate(sorted(range(len(widths) - wrapping, len(widths)), key=widths.__getitem__)):
        shared[column] = min(widths[column], room // (wrapping - left))
        room -= shared[column]
    return shared


def _row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """One row, as many lines as its longest cell takes."""
    wrapped = [textwrap.wrap(cell, max(1, size)) or [""] for cell, size in zip(cells, widths, strict=True)]
    return [
        (" " * GAP).join(part.ljust(size) for part, size in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*wrapped, fillvalue="")
    ]
