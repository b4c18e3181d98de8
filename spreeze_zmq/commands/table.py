"""Tables of text: as wide as the terminal, and never wrapped where another program reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(headings: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print rows below headings; in a terminal long cells wrap, the first column does not."""
    rows = [list(row) for row in rows]
    if not sys.stdout.isatty():
        _print_plain(headings, rows, title)
        return
    table = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def _print_plain(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    lines = [list(headings), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    if title:
        print(title)
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
