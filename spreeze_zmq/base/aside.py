"""Standard output for the program that reads a result: what other code prints meanwhile goes elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_OUTPUT, _ERRORS = 1, 2


@contextlib.contextmanager
def printing_aside() -> Iterator[None]:
    """Have what this process, and those that it starts, print meanwhile go to standard error."""
    sys.stdout.flush()
    kept = os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, _OUTPUT)
        os.close(kept)
