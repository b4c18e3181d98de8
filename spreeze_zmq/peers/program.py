"""The program that is real among its peers, started as the launcher starts it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from spreeze_zmq.base.errors import InputError


class Life:
    """One start of the program, as the launcher starts it.

    Attributes:
        name: ``ROLE-INDEX``.
        began_s: monotonic time of the start.
        usage: ``rss`` in bytes and ``cpu_s`` in seconds at the last :meth:`measure`; empty before, and if it
            had ended.

    Raises:
        InputError: the command cannot be run.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, lock: Path) -> None:
        self.name, self.log, self.lock, self.usage = name, log, lock, dict[str, float]()
        with log.open("wb") as out:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            try:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    env=environment,
                )
            except OSError as error:
                raise InputError(
                    f"{command[0]} cannot be started: {error.strerror}; expected after --: an executable "
                    "file, or a program with its arguments such as python my_sampler"
                ) from error
        self.began_s = time.monotonic()

    @property
    def ended(self) -> bool:
        """Whether the process has exited."""
        return self.process.poll() is not None

    def words(self) -> list[str]:
        """The lines of its log."""
        return self.log.read_text(errors="replace").strip().splitlines()

    def ending(self) -> str:
        """How it ended, with the last lines of its log."""
        words = " / ".join(self.words()[-3:]) or "empty"
        return f"it ended with exit code {self.process.poll()}; its log: {words}"

    def lock_state(self) -> tuple[bool, str]:
        """Whether its lock file is locked, and the text in that file."""
        text = self.lock.read_text().strip() if self.lock.exists() else "there is no such file"
        try:
            with self.lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, text
        except OSError:
            pass
        return False, text

    def measure(self) -> None:
        """Measure the memory and CPU time of it and the processes that it has started."""
        try:
            family = [psutil.Process(self.process.pid), *self.children()]
            rss = sum(process.memory_info().rss for process in family)
            self.usage = {"rss": rss, "cpu_s": sum(sum(process.cpu_times()[:4]) for process in family)}
        except psutil.Error:  # it has just ended
            pass

    def children(self) -> list[psutil.Process]:
        """The processes that it has started, and theirs."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return []

    def kill_alone(self) -> None:
        """Kill it, as whoever runs out of memory is, and not its children."""
        self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        """Kill it and its children."""
        if not self.ended:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
