"""Marks the programs that import what a user names, so that none of these modules begins another run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

#: Set in such a program, and therefore in the processes that it starts.
VARIABLE = "SPREEZE_IMPORTS"


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Mark this process, and those that it starts meanwhile."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def is_marked() -> bool:
    """Whether this process, or one that it comes from, is marked."""
    return VARIABLE in os.environ
