"""Reads the last words of a process that has ended from its log, for the launcher's messages."""

from __future__ import annotations

from pathlib import Path

TAIL_BYTES = 64 * 1024
#: Number of last lines that are quoted where there is no traceback.
QUOTED_LINES = 10
#: A longer traceback is cut in the middle: its beginning and its end matter.
MOST_LINES = 60
HEAD_LINES = 15

#: First lines of crash reports: Python's, and faulthandler's after a signal such as SIGSEGV.
BEGINNINGS = ("Traceback (most recent call last):", "Fatal Python error:")
#: Lines between an exception and its cause.
LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def last_words(log_path: Path, start: int = 0) -> str:
    """The last traceback of a log, with the exceptions that caused it, or else the last lines.

    Args:
        log_path: a log in UTF-8; invalid bytes are replaced.
        start: the first byte to read, such as the beginning of the last incarnation.

    Returns:
        Text without trailing blanks; empty for an empty or missing log.
    """
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(start, size - TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    begin = _last_report(lines)
    return "\n".join(lines[-QUOTED_LINES:] if begin is None else _shortened(lines[begin:])).strip("\n")


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
