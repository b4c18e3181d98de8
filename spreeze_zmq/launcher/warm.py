"""The servers that fork the shipped components of a run; they load modules while the launcher does."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.supervisor.forking import ForkServer, ForkSpawner
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY, GroupSpawner, ProcessSpec

#: Components without torch, and with it: a server for each, since torch alone takes 200 MB.
LIGHT, LEARNERS = ("sampler", "broker", "evaluator"), ("critic_learner", "actor_learner")
#: Command lines with one of these start no process.
IDLE = ("-h", "--help", "--version", "--list", "--check", "--graph", "--dry-run", "--inproc")

_servers: list[ForkServer] = []


def start(arguments: Sequence[str]) -> None:
    """Start the servers for this process's runs, unless the command line starts none. Where the machine
    allows no server, for want of open files perhaps, the processes start by their commands.
    """
    if not _servers and not set(IDLE) & set(arguments):
        folder, unlogged = shipped_folder("components"), Path(os.devnull)
        for names, memory, sets_threads in ((LEARNERS, KEEP_FREED_MEMORY, True), (LIGHT, {}, False)):
            spec = ProcessSpec(name="server", command=(), log_path=unlogged, environment=memory)
            programs = [folder / name for name in names]
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _servers.append(ForkServer(programs, spec, sets_threads=sets_threads))


def spawner(leftovers: Sequence[Path], lent: Iterable[int]) -> GroupSpawner:
    """Starts processes, by the servers if there are any; see :class:`GroupSpawner`."""
    return ForkSpawner(_servers, leftovers, lent) if _servers else GroupSpawner(leftovers, lent)


def stop() -> None:
    """End the servers."""
    while _servers:
        _servers.pop().kill()
