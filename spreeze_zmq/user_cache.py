"""The folder of this library's measurements of the user's machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/spreeze_zmq``, by default ``~/.cache/spreeze_zmq``."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(chosen) if chosen and Path(chosen).is_absolute() else Path("~/.cache").expanduser()
    return base / "spreeze_zmq"
