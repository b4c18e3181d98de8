"""Prints tables: as wide as the terminal, and never wrapped if the output is not a terminal."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spreeze_zmq.base.charset import say

GAP = 2
#: Columns that wrap get at least this many characters each.
LEAST_WIDTH = 20
#: No line is longer.
UNLIMITED = 1_000_000


def show(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", wrapping: int = 1) -> None:
    """Print rows below headings.

    Args:
        headings: one for each column.
        rows: their cells.
        title: a line above.
        wrapping: how many columns, the last ones, may wrap in a terminal; no other cell is ever cut.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
    if title:
        say(title)
    say("\n".join(lines(headings, list(rows), width, wrapping)))


def lines(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, wrapping: int = 1) -> list[str]:
    """The lines of a table that is at most ``width`` characters wide.

    If the columns that do not wrap leave too little room, each row is a paragraph that names its cells.
    """
    num_whole = len(headings) - wrapping
    columns = list(zip(headings, *rows, strict=True))
    room = width - sum(max(map(len, column)) for column in columns[:num_whole]) - GAP * (len(headings) - 1)
    if room < LEAST_WIDTH * wrapping:
        return [line for row in rows for line in _paragraph(headings, row, width)]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(Text(heading), no_wrap=number < num_whole)
    for row in rows:
        table.add_row(*(Text(" ".join(cell.splitlines())) for cell in row))
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _paragraph(headings: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    named = [f"{heading} {cell}" for heading, cell in zip(headings[1:], row[1:], strict=True) if cell]
    indent = " " * GAP
    return [row[0], *textwrap.wrap(", ".join(named), width, initial_indent=indent, subsequent_indent=indent)]
