"""Reads the last words of a process that has ended from its log, for the launcher's messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 64 * 1024
#: First and last lines of a life that are quoted where there is no crash report.
FIRST_LINES, QUOTED_LINES = 3, 10
#: A longer traceback is cut in the middle: its beginning and its end matter.
MOST_LINES = 60
HEAD_LINES = 15

#: First lines of crash reports: Python's, and faulthandler's after a signal such as SIGSEGV.
BEGINNINGS = ("Traceback (most recent call last):", "Fatal Python error:")
#: The line that says what happened, in reports of Rust, Go, Java, C++, sanitizers and JavaScript; of the last
#: one, the lines before it say where.
FOREIGN = re.compile(
    r"thread '.*' panicked at |panic: |fatal error: |Exception in thread |terminate called |==\d+==ERROR: "
    r"|(?:Uncaught )?(?:\w*Error|\w*Exception)\b(?: \[\w+\])?:"
)
LINES_BEFORE = 4
#: Lines between an exception and its cause.
LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def last_words(log_path: Path, start: int = 0) -> str:
    """The last crash report of a log, with the exceptions that caused it, or else the first and last lines.

    Args:
        log_path: a log in UTF-8; invalid bytes are replaced.
        start: the first byte to read, such as the beginning of the last incarnation.

    Returns:
        Text without trailing blanks; empty for an empty or missing log.
    """
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            first = _lines_at(log, start, TAIL_BYTES)
            whole = size - start <= TAIL_BYTES
            lines = first if whole else _lines_at(log, size - TAIL_BYTES, TAIL_BYTES)
    except FileNotFoundError:
        return ""
    while lines and not lines[-1].strip():
        lines.pop()
    if (begin := _last_report(lines)) is not None:
        return "\n".join(_shortened(lines[begin:])).strip("\n")
    if (begin := _foreign_report(lines)) is not None:
        return "\n".join(_shortened(lines[min(begin, max(0, len(lines) - QUOTED_LINES)) :])).strip("\n")
    return "\n".join(_both_ends(lines, first)).strip("\n")


def _lines_at(log: BinaryIO, place: int, size: int) -> list[str]:
    """The lines of a part of a log, without the zeros of one whose middle was dropped."""
    log.seek(place)
    return log.read(size).replace(b"\0", b"").decode("utf-8", errors="replace").splitlines()


def _foreign_report(lines: list[str]) -> int | None:
    """Where the last crash report of another language than Python begins; None where there is none."""
    found = [number for number, line in enumerate(lines) if FOREIGN.match(line)]
    return max(0, found[-1] - LINES_BEFORE) if found else None


def _both_ends(lines: list[str], first: list[str]) -> list[str]:
    """The last lines, and before them the first ones of the life: a report may begin there."""
    if lines is first and len(lines) <= FIRST_LINES + QUOTED_LINES + 1:
        return lines
    left_out = (
        f"  ... {len(lines) - FIRST_LINES - QUOTED_LINES} lines left out ..." if lines is first else "  ..."
    )
    return [*first[:FIRST_LINES], left_out, *lines[-QUOTED_LINES:]]


def _last_report(lines: list[str]) -> int | None:
    """The first line of the last crash report, including its chain of causes; None where there is none."""
    begin = None
    linked = False
    for number, line in enumerate(lines):
        if any(beginning in line for beginning in BEGINNINGS):
            begin = begin if linked else number
            linked = False
        elif any(link in line for link in LINKS):
            linked = begin is not None
    return begin


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_LINES:
        return lines
    left_out = len(lines) - MOST_LINES
    return [*lines[:HEAD_LINES], f"  ... {left_out} lines left out ...", *lines[-(MOST_LINES - HEAD_LINES) :]]
