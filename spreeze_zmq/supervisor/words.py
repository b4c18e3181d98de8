"""Reads from a process's log what it said before it died, so that the first failure can be printed last."""

from __future__ import annotations

from pathlib import Path

TAIL_BYTES = 64 * 1024
#: Without a traceback, this many of the last lines are quoted.
QUOTED_LINES = 10
#: A longer traceback loses its middle; how it begins and what it says in the end are what counts.
MOST_LINES = 60
HEAD_LINES = 15

#: What begins a report of a crash: Python's own, and faulthandler's after a signal such as SIGSEGV.
BEGINNINGS = ("Traceback (most recent call last):", "Fatal Python error:")
#: What joins an exception to the one that it came of.
LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def last_words(log_path: Path, start: int = 0) -> str:
    """The last traceback of a log, with the exceptions that it came of; without one, the last lines.

    Args:
        log_path: a log in UTF-8; other bytes are replaced.
        start: byte from which on to look, such as where the last life of the process began.

    Returns:
        Text without trailing blanks; empty where nothing was said or there is no log.
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
    """Where the last crash report begins; the chain of causes before it belongs to it."""
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
