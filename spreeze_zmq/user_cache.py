"""This library's folders in the user's home: measurements of the machine, and marks of the user's runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/spreeze_zmq``, by default ``~/.cache/spreeze_zmq``."""
    return _base("XDG_CACHE_HOME", "~/.cache") / "spreeze_zmq"


def state_folder() -> Path:
    """``$XDG_STATE_HOME/spreeze_zmq``, by default ``~/.local/state/spreeze_zmq``."""
    return _base("XDG_STATE_HOME", "~/.local/state") / "spreeze_zmq"


def _base(variable: str, default: str) -> Path:
    chosen = os.environ.get(variable, "")
    return Path(chosen) if chosen and Path(chosen).is_absolute() else Path(default).expanduser()
