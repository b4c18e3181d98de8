"""``spreeze-launch``, forked from a process that has loaded its modules and those of its components.

A whole run costs a test no imports then. The program is the user's; the servers that fork its components are
forked from it, where a user's are started, and so are its children as those are.
"""

import os
import signal
import socket
import sys
from pathlib import Path

from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.parent_death import bound_to_parent
from spreeze_zmq.commands import begin, launch  # noqa: F401 - it is loaded before the fork
from spreeze_zmq.envs import in_process, probing  # noqa: F401 - so is what looks at environments
from spreeze_zmq.envs.tasks import classic  # noqa: F401
from spreeze_zmq.launcher import warm
from spreeze_zmq.supervisor import forkserver
from spreeze_zmq.supervisor.forking import ForkServer

#: The variable that names the terminal of a launcher that has one.
TERMINAL = "TESTS_TERMINAL"


class Child:
    """A forked child of this process, with the methods of :class:`subprocess.Popen` that a server needs."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self, options=os.WNOHANG):
        """The exit code; None while it goes on."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        """The exit code, once it has ended."""
        return self.poll(0)

    def kill(self):
        """Has no effect after its end, as of a ``Popen``."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkedServer(ForkServer):
    """A server that is a fork of this process, which returns from the constructor too: see ``asked``.

    Attributes:
        asked: in the fork, the socket at which it is asked; None in this process.
    """

    def __init__(self, programs, *, sets_threads):
        self._programs, self._waiting = list(map(str, programs)), {}
        self._threads, self._sets_threads = 1, sets_threads
        self._asking, self.asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        bind, pid = bound_to_parent(signal.SIGKILL), os.fork()
        if pid == 0:
            bind()
            os.setsid()
            self._asking.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nothing, number)
            os.close(nothing)
        else:
            self.asked.close()
            self.asked, self._process = None, Child(pid)
            self._asking.setblocking(False)

    def serve(self):
        """Fork a process for each request, in the fork; the processes return too."""
        sys.argv = ["forkserver", str(self.asked.detach()), *self._programs, " "]
        forkserver.main()


def main():
    """Launch, or serve: every process that is forked on the way returns from here."""
    if terminal := os.environ.pop(TERMINAL, ""):
        slave = os.open(terminal, os.O_RDWR)  # the first that a session opens is its own
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(slave, number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
        os.close(slave)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in given if place and place not in sys.path]
    if not set(warm.IDLE) & set(sys.argv):
        folder = shipped_folder("components")
        for names, sets_threads in ((warm.LEARNERS, True), (warm.LIGHT, False)):
            server = ForkedServer([Path(folder) / name for name in names], sets_threads=sets_threads)
            if server.asked is not None:
                return server.serve()
            warm._servers.append(server)
    # This process has torch, but none of its threads: environments are looked at in a fork, as a user's are.
    probing.may_fork = lambda: True
    return begin.spreeze_launch()


if __name__ == "__main__":
    sys.exit(main())
