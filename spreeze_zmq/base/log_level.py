"""From which level on the processes of a run write lines of their logs."""

from __future__ import annotations

import logging
import os

from spreeze_zmq.base.errors import InputError

VARIABLE = "SPREEZE_LOG"
LEVELS = "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"


def log_level() -> int:
    """The level of ``logging`` that ``SPREEZE_LOG`` names, in letters of any size; that of INFO without it.

    Raises:
        InputError: it names none.
    """
    word = os.environ.get(VARIABLE) or "INFO"
    if word.upper() not in LEVELS:
        raise InputError(f"{VARIABLE}={word}: expected {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return int(getattr(logging, word.upper()))
