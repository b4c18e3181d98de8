"""A program that loads the modules of components once and forks their processes, which start at once.

``forkserver SOCKET PROGRAM... BLANKS``: a program is a component's folder; the blanks make room for the
commands of the forked. Each message at the socket asks for one process. Its descriptors are a JSON file, as
:mod:`spreeze_zmq.supervisor.forking` writes it, what the launcher's guard reads, the process's standard
output, its standard error, and the others that it inherits. The answer is the number of its group there and
its process id, -1 where the machine allows no further one.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import math
import os
import runpy
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from spreeze_zmq.base.guard import GuardedGroup
from spreeze_zmq.base.parent_death import bound_to_parent

#: Most bytes of a message, and most descriptors beside it.
MESSAGE_BYTES, MOST_DESCRIPTORS = 256, 64
#: The folder of this package.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: ``__name__`` of a program that is loaded but not run.
LOADED = "__loaded__"
#: Longest time between two ticks of the kernel's clock, whose last one is the time of a change of a file.
TICK_NS = 10_000_000


def main() -> None:
    """Load, then fork a process for each request until the launcher is gone, or a module of this package or
    of the programs has changed since this began: processes that start by their commands have modules,
    programs and native code of one release. Forked processes return too.
    """
    began_ns = time.time_ns() - TICK_NS
    asking = socket.socket(fileno=int(sys.argv[1]))
    programs = sys.argv[2:-1]
    for program in programs:
        runpy.run_path(program, run_name=LOADED)
    loaded = _stamps((PACKAGE, *programs))
    if any(_changed_ns(file) >= began_ns for file in loaded):
        return  # meanwhile, so that nobody knows which of its contents is loaded
    if len(os.listdir("/proc/self/task")) > 1:
        return  # a forked process would lack the threads of a module
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy what it shares with the others
    while True:
        data, descriptors, _, _ = socket.recv_fds(asking, MESSAGE_BYTES, MOST_DESCRIPTORS)
        if not data or _stamps((PACKAGE, *programs)) != loaded:
            return
        with open(descriptors[0], "rb") as body:
            request = json.load(body)
        with socket.socket(fileno=descriptors[1]) as lines:
            forked = _fork(asking, GuardedGroup(lines, request["number"], request["graceful"]))
        if forked:
            asking.close()
            _become(request, descriptors[2:])
            return
        for descriptor in descriptors[2:]:
            os.close(descriptor)


def _stamps(folders: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Time and size of the files of all modules from these folders; zeros of one that is gone."""
    found = {}
    for module in list(sys.modules.values()):
        file = str(getattr(module, "__file__", None))
        if file.startswith(tuple(folders)):
            try:
                stat = os.stat(file)
                found[file] = stat.st_mtime_ns, stat.st_size
            except OSError:
                found[file] = 0, 0
    return found


def _changed_ns(file: str) -> float:
    """When a file last changed here, whatever time its content has; infinite of one that is gone."""
    try:
        return os.stat(file).st_ctime_ns
    except OSError:
        return math.inf


def _fork(asking: socket.socket, group: GuardedGroup) -> bool:
    """Fork a process with a session of its own, which this one's parent adopts, as it does all orphans. It
    begins its group and answers, since the server could die before it had.

    Returns whether this is the process itself.
    """
    reading, writing = os.pipe()
    try:
        between = os.fork()
    except OSError:
        between = -1
    if between == 0:
        parent = os.getpid()
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            os._exit(1)
        os.setsid()
        group.begin()
        while os.getppid() == parent:
            time.sleep(0.0002)
        asking.send(f"{group.number} {os.getpid()}".encode())
        os.write(writing, b"answered")
    elif between > 0:
        os.waitpid(between, 0)
    os.close(writing)
    if between != 0 and not os.read(reading, MESSAGE_BYTES):
        asking.send(f"{group.number} -1".encode())
    os.close(reading)
    return between == 0


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Be the process of a request, with its parent, descriptors, environment and program."""
    bound_to_parent(request["parent_death_signal"], request["parent"])()
    if request["nice"]:
        os.nice(request["nice"])
    os.sched_setaffinity(0, request["cpus"])
    wanted = [1, 2, *request["descriptors"]]
    free = max(*wanted, *descriptors) + 1
    for number, descriptor in zip(wanted, [_moved(each, free) for each in descriptors], strict=True):
        if number > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            raise OSError(f"descriptor {number} is to be inherited, and is open here for something else")
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if given := os.environ.get("PYTHONPATH"):  # in which an empty name is the current folder
        sys.path[:] = dict.fromkeys([*map(os.path.abspath, given.split(os.pathsep)), *sys.path])
    command = request["command"]
    _show_as(" ".join(command))
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()  # the forked would draw the same numbers; Python seeds its own anew
    sys.argv = command[1:]
    runpy.run_path(command[1], run_name="__main__")


def _moved(descriptor: int, least: int) -> int:
    """A descriptor at a number of at least ``least``."""
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(descriptor)
    return moved


def _show_as(command: str) -> None:
    """Have ``ps`` show this command, as far as the line of the server's own command is long enough."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    if len(fields) < 47:  # of an emulated processor
        return
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5); zeros under gVisor
    if end - start <= 2:
        return
    text = command.encode()[: end - start - 2]
    ctypes.memset(start, ord(" "), end - start)  # the kernel shows one string where the last byte is not 0
    ctypes.memmove(start, text + b"\0", len(text) + 1)


if __name__ == "__main__":
    main()
