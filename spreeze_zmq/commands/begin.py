"""Entry points of the installed programs: Ctrl-C while their modules load ends them without a traceback."""

from __future__ import annotations

import importlib
import signal


def spreeze() -> int:
    """The program ``spreeze``; returns its exit code."""
    return _begin("spreeze")


def spreeze_launch() -> int:
    """The program ``spreeze-launch``; returns its exit code."""
    return _begin("launch")


def _begin(module: str) -> int:
    if interruptible := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = importlib.import_module(f"spreeze_zmq.commands.{module}").main
    if interruptible:
        errors = importlib.import_module("spreeze_zmq.errors")
        signal.signal(signal.SIGINT, errors.interrupt)
    return int(main())
