"""One child process: starts it in a process group that dies with the launcher, polls and signals it."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.guard import Guard, GuardedGroup
from spreeze_zmq.base.parent_death import bound_to_parent
from spreeze_zmq.base.unbound import unbound
from spreeze_zmq.supervisor.logs import open_log

#: The variables from which linear algebra libraries read their number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")

#: The environment of learners, and of measurements of them. By default glibc returns large freed blocks to
#: the kernel at once, and every update would fault its pages in again.
KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "268435456",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_TOP_PAD_": "67108864",
}

#: Asks for a child that has ended, without waiting for one or reaping it.
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
#: Time between two looks for orphans of a group that lives.
ORPHANS_INTERVAL_S = 1.0


def with_threads(number: int) -> dict[str, str]:
    """The variables of a process whose linear algebra libraries have this number of threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(number))


@dataclass(frozen=True)
class ProcessSpec:
    """The command and conditions of one process, and when it is stopped and restarted.

    Attributes:
        name: ``ROLE-INDEX``, unique among the supervised.
        command: program and arguments.
        log_path: file that stdout and stderr are appended to.
        environment: added to the launcher's, without what binds threads; overrides ``threads``.
        nice: added to the launcher's niceness, 0 to 19.
        threads: threads of linear algebra libraries; 0 for the libraries' default.
        stop_grace_s: seconds from SIGTERM to SIGKILL.
        max_restarts: restarts within ``restart_window_s``; one more crash is final.
        restart_window_s: seconds of work for which a crash counts.
        parent_death_signal: signal at the launcher's death; SIGTERM for a process that must clean up.
        cpus: CPUs that it may run on; None for all of the launcher's.
        descriptors: file descriptors that it inherits.
    """

    name: str
    command: tuple[str, ...]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    nice: int = 0
    threads: int = 1
    stop_grace_s: float = 5.0
    max_restarts: int = 3
    restart_window_s: float = 60.0
    parent_death_signal: int = signal.SIGKILL
    cpus: frozenset[int] | None = None
    descriptors: tuple[int, ...] = ()


class Process(Protocol):
    """A started process, for the supervisor."""

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""

    @property
    def log_start(self) -> int:
        """The byte of its log at which this incarnation begins."""

    @property
    def has_printed(self) -> bool:
        """Whether anything has been written to its standard output; our components write nothing there."""

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives. Its exit kills the rest of its group."""

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""


class Spawner(Protocol):
    """Starts processes; replaced in tests."""

    def spawn(self, spec: ProcessSpec) -> Process:
        """Start one process."""

    def attend(self) -> None:
        """See to processes that are still to be started, or to be ended as soon as they are; never waits."""

    def close(self) -> None:
        """Release resources; nothing is spawned afterwards."""


class GroupSpawner:
    """Starts each process as the leader of its own session, so that Ctrl-C reaches only the launcher.

    Args:
        leftovers: files and folders to remove if the launcher dies.
        lent: CPUs beyond this process's own that others may run on.
    """

    def __init__(self, leftovers: Sequence[Path] = (), lent: Iterable[int] = ()) -> None:
        self._lent = frozenset(lent)
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: the kernel would drop exit codes
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._guard = Guard(leftovers)

    def spawn(self, spec: ProcessSpec) -> Process:
        """Start one process."""
        return self.by_command(spec)

    def by_command(self, spec: ProcessSpec) -> GroupProcess:
        """Start one process; only in the main thread, since the parent-death signal is sent when the forking
        thread ends.

        Raises:
            InputError: the command cannot be run, the log cannot be written, or no CPU of ``cpus`` is usable.
        """
        self.check_cpus(spec)
        log, output, log_start = open_log(spec.name, spec.log_path, spec.command)
        group = self.group(spec)
        try:
            popen = subprocess.Popen(
                spec.command,
                env=environment_of(spec),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
                pass_fds=spec.descriptors,
                preexec_fn=self._preparation(spec, group),
            )
        except (OSError, subprocess.SubprocessError) as error:
            group.end()
            os.close(output)
            raise InputError(f"{spec.name} {why_not_started(spec.command, error)}") from error
        finally:
            os.close(log)
        return self.watch(popen, group, log_start, output)

    def check_cpus(self, spec: ProcessSpec) -> None:
        """Raise InputError if a process may run on no CPU."""
        if spec.cpus is not None and not spec.cpus & (os.sched_getaffinity(0) | self._lent):
            raise InputError(f"{spec.name}: none of its CPUs {sorted(spec.cpus)} is ours to use; change cpus")

    def group(self, spec: ProcessSpec) -> GuardedGroup:
        """What the leader of a process's group begins, so that the group ends with the launcher."""
        return self._guard.group(graceful=spec.parent_death_signal != signal.SIGKILL)

    def watch(self, child: Child, group: GuardedGroup, log_start: int, output: int) -> GroupProcess:
        """The process of a started child, which has begun the group."""

        def ended() -> None:
            group.end()
            self.ended(child.pid)

        return GroupProcess(child, log_start, output, ended)

    def ended(self, leader: int) -> None:
        """Note that a group has ended."""

    def attend(self) -> None:
        """Nothing to do: all that is asked for is started at once."""

    def close(self) -> None:
        self._guard.close()

    def _preparation(self, spec: ProcessSpec, group: GuardedGroup) -> Callable[[], None]:
        """The function for the child to run between fork and exec; it does as little as possible."""
        bind = bound_to_parent(spec.parent_death_signal)

        def prepare() -> None:
            group.begin()
            bind()
            if spec.nice:
                os.nice(spec.nice)
            if spec.cpus is not None:
                os.sched_setaffinity(0, spec.cpus)

        return prepare


class Child(Protocol):
    """A child process, such as a ``subprocess.Popen``."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None until ``wait`` has returned."""

    def wait(self) -> int:
        """Wait for its end, and reap it."""


class GroupProcess:
    """The leader of a process group.

    Args:
        child: the process.
        log_start: the byte of its log at which it begins.
        output: its standard output, an open file of its own: the kernel moves the position in it, which all
            who hold it share, to the end of each write.
        on_end: called when it has ended.
    """

    def __init__(self, child: Child, log_start: int, output: int, on_end: Callable[[], None]) -> None:
        self._child, self.log_start, self._output, self._on_end = child, log_start, output, on_end
        self._has_printed = False
        self._reaps_at_s = 0.0

    @property
    def has_printed(self) -> bool:
        """Whether it or a process of its group has written to its standard output."""
        if not self._has_printed and self._output >= 0:
            self._has_printed = os.lseek(self._output, 0, os.SEEK_CUR) > 0
        return self._has_printed

    @property
    def pid(self) -> int:
        return self._child.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives. Its exit kills the rest of its group."""
        if self._child.returncode is None:
            if os.waitid(os.P_PID, self.pid, ENDED) is None:
                self._reap_orphans()
                return None
            # The leader is not reaped yet, so no other group can have its number.
            self.signal(signal.SIGKILL)
            self._child.wait()
            _ = self.has_printed
            os.close(self._output)
            self._output = -1
            self._on_end()
        return self._child.returncode

    def _reap_orphans(self) -> None:
        """Reap what an environment has started and left, and this process adopted: a group has no other child
        of this process but its leader.
        """
        if time.monotonic() < self._reaps_at_s:
            return
        while (ended := os.waitid(os.P_PGID, self.pid, ENDED)) is not None and ended.si_pid != self.pid:
            os.waitpid(ended.si_pid, 0)
        self._reaps_at_s = time.monotonic() + ORPHANS_INTERVAL_S

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; does nothing once the leader's exit has been polled."""
        if self._child.returncode is None:
            os.killpg(self.pid, number)


def environment_of(spec: ProcessSpec) -> dict[str, str]:
    threads = with_threads(spec.threads) if spec.threads else {}
    # a log is read as UTF-8, whatever the locale: a print of an environment must not end its episode
    python = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
    return {**unbound(), **python, **threads, **spec.environment}


def why_not_started(command: Sequence[str], error: Exception) -> str:
    """What ``subprocess.Popen`` raises for a command, as the end of a sentence about it."""
    program = command[0]
    cause = str(error)
    if isinstance(error, FileNotFoundError):
        cause = f"there is no program {program!r}, or what its first line names is missing"
    elif isinstance(error, PermissionError):
        cause = f"{program!r} is not an executable file"
    elif isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        cause = f"{program!r} is neither a program nor begins with #!"
    return f"cannot be started: {cause}; its command is: {shlex.join(command)}"
