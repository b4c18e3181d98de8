"""Components, and launchers of whole runs, that are forked by a server which has imported what they need."""

import os
import socket
import sys
import threading
import time
from pathlib import Path

import psutil

from spreeze_zmq.base.guard import Guard, GuardedGroup
from spreeze_zmq.launcher import warm
from spreeze_zmq.peers.program import Life
from spreeze_zmq.supervisor import ForkServer, ProcessSpec, forking
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY

ROOT = Path(__file__).parents[1]
COMPONENTS = ROOT / "components"
PEERS = ROOT / "tests" / "peers"
LAUNCHING = ROOT / "tests" / "launching.py"
#: Of the tests' own; it imports what learners do.
BROKEN_LEARNER = PEERS / "broken_learner.py"
#: Imports what the example of a sampler in Python does, of which each broken one is a file of its own.
SAMPLER_IMPORTS = PEERS / "sampler_imports.py"


class Forked(psutil.Process):
    """A process that a server has forked, with the methods of :class:`subprocess.Popen`."""

    def __init__(self, server, spec):
        self.spec, self.begin = spec, super().__init__
        lines, guard = socket.socketpair()
        guard.close()  # there is none: its parent-death signal ends it
        self.group = GuardedGroup(lines, next(Guard._numbers), graceful=False)
        forking._adopt_orphans(True)
        try:
            with spec.log_path.open("wb") as log:
                assert server.ask(self, log.fileno(), log.fileno())
            while not hasattr(self, "_pid"):
                server.hear()
                time.sleep(0.001)
        finally:
            lines.close()
            forking._adopt_orphans(False)  # it is a child by now, and orphans of other tests need not be

    def poll(self):
        """The exit code; None while it goes on."""
        try:
            return self.wait(0)
        except psutil.TimeoutExpired:
            return None


class ForkedLife(Life):
    """A start by a server."""

    def __init__(self, name, log, lock, server, spec):
        self.name, self.log, self.lock, self.usage = name, log, lock, {}
        self.process, self.began_s = Forked(server, spec), time.monotonic()


class Servers:
    """The two of a launcher and one for strangers' samplers, which one thread at a time asks, and one for
    launchers, once the first is wanted.
    """

    def __init__(self):
        learners = [*(COMPONENTS / name for name in warm.LEARNERS), BROKEN_LEARNER]
        others = [COMPONENTS / name for name in warm.LIGHT]
        ours = {"PYTHONPATH": str(ROOT)}  # what is of the tests imports others of them
        about = (
            (learners, KEEP_FREED_MEMORY | ours, True),
            (others, ours, False),
            ([SAMPLER_IMPORTS], ours, False),
        )
        self._asking, self._servers, self._launching = threading.Lock(), [], None
        for programs, memory, sets_threads in about:
            spec = ProcessSpec("server", (), Path(os.devnull), memory)
            self._servers.append(ForkServer(programs, spec, sets_threads=sets_threads))

    @property
    def components(self):
        """Those that fork shipped components."""
        return self._servers[:2]

    def life(self, name, command, log, lock):
        """A :class:`Life`, of whatever command."""
        spec = ProcessSpec(name, tuple(map(str, command)), log)
        able = [server for server in self._servers if server.forks(spec)]
        if spec.command[1:] and spec.command[1].endswith(".py"):
            able.append(self._servers[-1])
        if not able:
            return Life(name, command, log, lock)
        with self._asking:
            return ForkedLife(name, log, lock, able[0], spec)

    def launcher(self, arguments, output):
        """The process of a ``spreeze-launch`` with these arguments, whose output goes to a file."""
        if self._launching is None:
            programs = [LAUNCHING, *(COMPONENTS / name for name in (*warm.LEARNERS, *warm.LIGHT))]
            spec = ProcessSpec("server", (), Path(os.devnull), KEEP_FREED_MEMORY)
            self._launching = ForkServer(programs, spec, sets_threads=True)
        command = (sys.executable, str(LAUNCHING), *map(str, arguments))
        with self._asking:
            return Forked(self._launching, ProcessSpec("launcher", command, Path(output), threads=0))

    def kill(self):
        """End them."""
        for server in filter(None, (*self._servers, self._launching)):
            server.kill()
