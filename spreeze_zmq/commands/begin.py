"""Entry points of the installed programs: Ctrl-C while their modules load ends them without a traceback."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import sys
import threading


def spreeze() -> int:
    return _begin("spreeze")


def spreeze_launch() -> int:
    return _begin("launch", warm=True)


def _begin(module: str, *, warm: bool = False) -> int:
    """Run a program of ``commands``; ``warm`` has servers load the modules of its processes meanwhile."""
    _open_closed()
    importlib.import_module("spreeze_zmq.base.unbound").unbind()  # before a module of the user loads torch
    if interruptible := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: how its processes end would be lost
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if warm:
        sys.argv[1:] = importlib.import_module("spreeze_zmq.base.command_line").taken(sys.argv[1:])
        servers = importlib.import_module("spreeze_zmq.launcher.warm")
        servers.start(sys.argv[1:])
    program = importlib.import_module(f"spreeze_zmq.commands.{module}")
    if not warm:
        program.chosen(sys.argv[1:])  # imports it, which Ctrl-C still ends at once
    if interruptible:
        errors = importlib.import_module("spreeze_zmq.base.errors")
        signal.signal(signal.SIGINT, errors.interrupt)
    try:
        return leave(int(program.main()))
    finally:
        if warm:
            servers.stop()


def _open_closed() -> None:
    """Have the standard streams that this program was begun without, as by ``>&-``, lead nowhere: a socket
    would get their numbers, and what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def leave(code: int) -> int:
    """End this program with an exit code where a thread of the user's code would keep it for ever; returns
    the code where there is none.
    """
    others = [each for each in threading.enumerate() if each is not threading.main_thread()]
    if all(each.daemon for each in others):
        return code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def pass_over_current_folder() -> None:
    """Look for modules where an installed program looks: ``python -m`` looks in the current directory too, in
    which no process of a run does.
    """
    if not sys.flags.safe_path:
        del sys.path[0]


if __name__ == "__main__":
    pass_over_current_folder()
    sys.exit(spreeze_launch())
