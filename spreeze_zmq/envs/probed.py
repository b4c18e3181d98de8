"""The process that looks at one environment for another one: see ``spreeze_zmq.envs.probing``."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

import msgpack

from spreeze_zmq.base.errors import (
    InvalidEnvironment,
    InvalidRandomization,
    in_one_line,
    is_installed,
    place_of,
)
from spreeze_zmq.base.parent_death import has_children
from spreeze_zmq.envs.failures import close
from spreeze_zmq.envs.probing import CLOSING, LENGTH
from spreeze_zmq.envs.processes import descendants

_PR_SET_CHILD_SUBREAPER = 36
#: Packages that processes of every run import after the environment's module.
NEEDED = ("torch", "numpy", "gymnasium", "mujoco", "zmq", "msgpack", "psutil", "safetensors", "spreeze_zmq")


def main(pipe: int) -> NoReturn:
    """Look at the environment that standard input describes."""
    visit(json.load(sys.stdin), pipe)


def visit(job: Mapping[str, Any], pipe: int) -> NoReturn:
    """Make the environment of a job, reset, step and close it, and end this process.

    What is found is written to ``pipe``, and whatever the user's code raises, in one line.
    """
    _settle()
    logging.getLogger("spreeze.envs").disabled = True  # what it says comes in messages
    visitor = _Visitor(job, pipe)
    with contextlib.suppress(BaseException):  # the other end is gone
        visitor.look()
        visitor.send({"left": descendants(os.getpid()) if has_children() else []})
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(0)


def _settle() -> None:
    """Begin as a new program would: no input, no handlers of the process that was forked."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    atexit._clear()
    if (pool := sys.modules.get("multiprocessing.util")) is not None:
        atexit.register(pool._exit_function)
    # Programs that the environment leaves behind become children of this process, which can then name them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _Visitor:
    def __init__(self, job: Mapping[str, Any], pipe: int) -> None:
        self.job, self.pipe, self.doing = job, pipe, "making it"
        self.folder = os.getcwd()

    def look(self) -> None:
        """Look at the environment and close it, or say what is wrong."""
        env_id = self.job["env_id"]
        try:
            from spreeze_zmq.envs.trial import look_at  # imports what a file of the user's may hide

            found, batch = look_at(env_id, self.job["env_kwargs"], self.job["randomize"], self.begin)
            if ":" in env_id and (said := hidden(self.folder)):
                raise InvalidEnvironment(f"{env_id}: {said}")
        except InvalidRandomization as error:
            self.send({"mistakes": error.mistakes})
            return
        except InvalidEnvironment as error:
            self.send({"error": f"{error}{self.hint()}"})
            return
        except BaseException as error:
            said = f"{self.doing} raised {in_one_line(error)} [{place_of(error)}]"
            self.send({"error": f"{env_id}: {said}{self.hint()}"})
            return
        self.send({"look": found.to_plain()})
        if batch is not None:
            self.begin(CLOSING)
            began_s = time.monotonic()
            said = close(batch) or batch.close_fault
            with contextlib.suppress(BaseException):
                atexit._run_exitfuncs()
            self.send({"closed": time.monotonic() - began_s, "said": said})

    def hint(self) -> str:
        """That a file of the user's hides a module, which may be why something failed."""
        with contextlib.suppress(Exception):
            return hint(self.folder, self.job["env_id"].partition(":")[0])
        return ""

    def begin(self, what: str) -> None:
        """Say what is called next."""
        self.doing = what
        self.send({"doing": what})

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message."""
        content = msgpack.packb(message, unicode_errors="surrogateescape")
        rest = memoryview(LENGTH.pack(len(content)) + content)
        while rest:
            rest = rest[os.write(self.pipe, rest) :]


def hint(folder: str, named: str) -> str:
    """A hint at the modules that were loaded from the user's files in place of others; empty if none was.

    Args:
        folder: the folder in which modules are looked for first.
        named: the module that the user has named, which is meant.
    """
    own = {
        name: str(module.__file__)
        for name, module in list(sys.modules.items())
        if "." not in name and name != named and _is_in(folder, getattr(module, "__file__", None))
    }
    files = [f"{file} hides the module '{name}': rename it" for name, file in own.items() if _elsewhere(name)]
    return f" ({'; '.join(files)})" if files else ""


def hidden(folder: str) -> str:
    """Which of the needed packages a file of the user's hides; empty for none."""
    for name in NEEDED:
        found = PathFinder.find_spec(name)
        if found is not None and _is_in(folder, found.origin) and _elsewhere(name):
            return f"{found.origin} hides the installed package '{name}', which a run needs: rename it"
    return ""


def _is_in(folder: str, file: str | None) -> bool:
    """Whether a file is a module's in one of the user's folders."""
    if not file:
        return False
    path = Path(file)
    return folder in (str(path.parent), str(path.parent.parent)) and not is_installed(file)


def _elsewhere(name: str) -> bool:
    """Whether there is another module of this name."""
    if name in sys.stdlib_module_names:
        return True
    installed = [path for path in sys.path if is_installed(os.path.realpath(path)) or is_installed(path)]
    return PathFinder.find_spec(name, installed) is not None
