"""Starts components by forking servers that have loaded their modules: such a start costs no imports."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import append_text, memory_file
from spreeze_zmq.base.guard import GuardedGroup
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.base.parent_death import bound_to_parent
from spreeze_zmq.supervisor.logs import open_log
from spreeze_zmq.supervisor.process import (
    GroupProcess,
    GroupSpawner,
    Process,
    ProcessSpec,
    environment_of,
)

_PR_SET_CHILD_SUBREAPER = 36
#: Least bytes of a server's command line: the processes that it forks show theirs in its place.
COMMAND_BYTES = 512
#: Bytes of a server's answer, ``NUMBER PROCESS``.
ANSWER_BYTES = 64


class ForkServer:
    """A process that loads components' programs and forks them.

    Args:
        programs: folders of Python components.
        spec: the conditions of their processes, as far as these are set before modules are loaded: the
            environment and the threads of libraries.
        sets_threads: whether the programs themselves set the number of their libraries' threads.
    """

    def __init__(self, programs: Sequence[Path], spec: ProcessSpec, *, sets_threads: bool = False) -> None:
        self._programs = [str(program) for program in programs]
        self._threads, self._sets_threads = spec.threads, sets_threads
        self._waiting: dict[int, ForkedProcess] = {}
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*PROGRAM, "spreeze_zmq.supervisor.forkserver", str(asked.fileno())]
        shown = len(" ".join([*command, *self._programs]))
        self._process = subprocess.Popen(
            [*command, *self._programs, " " * (COMMAND_BYTES - shown)],
            env=environment_of(spec),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[asked.fileno()],
            preexec_fn=bound_to_parent(signal.SIGKILL),
        )
        asked.close()
        self._asking.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def forks(self, spec: ProcessSpec) -> bool:
        """Whether it can start this process as the command would."""
        ours = spec.command[0] == sys.executable and spec.command[1] in self._programs
        same = spec.threads == self._threads or (self._sets_threads and spec.threads > 0)
        return ours and same and self._process.poll() is None

    def ask(self, process: ForkedProcess, log: int, output: int) -> bool:
        """Ask for a process, which is told its process id later; returns whether that was possible."""
        try:
            with open(memory_file("spreeze-request"), "w+b", buffering=0) as body:
                body.write(_request(process.spec, process.group))
                body.seek(0)
                lines = process.group.lines.fileno()
                inherited = [body.fileno(), lines, output, log, *process.spec.descriptors]
                socket.send_fds(self._asking, [b"fork"], inherited)
        except OSError:
            return False
        self._waiting[process.group.number] = process
        return True

    def hear(self) -> None:
        """Tell the processes that have been forked their process ids; all that wait if the server is gone."""
        with contextlib.suppress(BlockingIOError):
            while answer := self._receive():
                number, pid = map(int, answer.split())
                if number in self._waiting:  # one that is killed as it answers is answered for, too
                    self._waiting.pop(number).begin(pid)
            for number in list(self._waiting):
                self._waiting.pop(number).begin(-1)

    def _receive(self) -> bytes:
        """The next answer; empty if the server is gone. Raises BlockingIOError where it is at work."""
        try:
            return self._asking.recv(ANSWER_BYTES)
        except ConnectionError:
            return b""

    def kill(self) -> None:
        """End the server; what it has forked goes on."""
        self._process.kill()
        self._process.wait()


def _request(spec: ProcessSpec, group: GuardedGroup) -> bytes:
    """What :mod:`spreeze_zmq.supervisor.forkserver` must know of a process."""
    return json.dumps(
        {
            "number": group.number,
            "graceful": group.graceful,
            "command": spec.command,
            "environment": environment_of(spec),
            "folder": os.getcwd(),
            "nice": spec.nice,
            "cpus": sorted(os.sched_getaffinity(0) if spec.cpus is None else spec.cpus),
            "descriptors": spec.descriptors,
            "parent": os.getpid(),
            "parent_death_signal": int(spec.parent_death_signal),
        }
    ).encode()


class ForkSpawner(GroupSpawner):
    """Has the servers start those processes that they can, and starts the others by their commands.

    This process adopts what the servers fork, and with it all orphans of its processes.

    Args:
        servers: they go on when it is closed.
        leftovers: files and folders to remove if the launcher dies.
        lent: CPUs beyond this process's own that others may run on.
    """

    def __init__(
        self, servers: Sequence[ForkServer], leftovers: Sequence[Path] = (), lent: Iterable[int] = ()
    ) -> None:
        super().__init__(leftovers, lent)
        self._servers, self._ended = servers, list[int]()
        _adopt_orphans(True)

    def spawn(self, spec: ProcessSpec) -> Process:
        """Start one process: by a server that can fork it, else by its command."""
        for server in self._servers:
            if server.forks(spec):
                self.check_cpus(spec)
                log, output, log_start = open_log(spec.name, spec.log_path, spec.command)
                process = ForkedProcess(spec, server, self, self.group(spec), log_start, output)
                asked = server.ask(process, log, output)
                os.close(log)
                if asked:
                    return process
                os.close(output)
        return self.by_command(spec)

    def ended(self, leader: int) -> None:
        self._ended.append(leader)
        self._reap()

    def attend(self) -> None:
        """Hear of all that has been forked, also for processes that have been told as ended before that."""
        for server in self._servers:
            server.hear()

    def close(self) -> None:
        self.attend()
        super().close()
        self._reap()
        _adopt_orphans(False)

    def _reap(self) -> None:
        """Reap the orphans of groups that have ended, which were killed with their leaders."""
        for group in list(self._ended):
            try:
                while os.waitpid(-group, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                self._ended.remove(group)


def _adopt_orphans(wanted: bool) -> None:
    """Have the kernel give this process the orphans among its descendants, or no longer."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


class ForkedProcess:
    """A process that a server has forked or is about to fork.

    Args:
        spec: its specification.
        server: the server.
        spawner: adopts it.
        group: its group, which it begins itself.
        log_start: the byte of its log at which it begins.
        output: its standard output.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        server: ForkServer,
        spawner: ForkSpawner,
        group: GuardedGroup,
        log_start: int,
        output: int,
    ) -> None:
        self.spec, self._server, self._spawner, self.group = spec, server, spawner, group
        self._log_start, self._output = log_start, output
        self._process: GroupProcess | None = None
        self._code: int | None = None

    def begin(self, pid: int) -> None:
        """Take the process that was forked, or start one by its command where ``pid`` is -1."""
        if self._code is not None:
            if pid > 0:
                # one that is forked between two spawners is not adopted, and ends
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            self.group.end()
        elif pid > 0:
            self._process = self._spawner.watch(_Adopted(pid), self.group, self._log_start, self._output)
        else:
            os.close(self._output)
            try:
                self._process = self._spawner.by_command(self.spec)
            except InputError as error:
                self._code = error.exit_code
                with contextlib.suppress(OSError), append_text(self.spec.log_path) as log:  # of a full disk
                    log.write(f"{self.spec.name.rpartition('-')[0]}: {error}\n")

    @property
    def pid(self) -> int:
        """Its process id; the server's before it is forked."""
        return self._server.pid if self._process is None else self._process.pid

    @property
    def log_start(self) -> int:
        return self._log_start if self._process is None else self._process.log_start

    @property
    def has_printed(self) -> bool:
        return self._process is not None and self._process.has_printed

    def poll(self) -> int | None:
        """The exit code, as :meth:`GroupProcess.poll` says it; None until its server was heard."""
        return self._code if self._process is None else self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; before there is one, the signal is its end."""
        if self._process is not None:
            self._process.signal(number)
        elif self._code is None:
            self._code = -number
            os.close(self._output)
            if number == signal.SIGKILL:
                self._server.kill()  # the others that wait for it start by their commands


class _Adopted:
    """A child process that another process has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode
