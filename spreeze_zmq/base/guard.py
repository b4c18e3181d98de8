"""Cleans up after a process that was killed: ends the process groups that it started, and removes a run's
sockets' folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import Unguarded

#: Seconds that graceful groups get to clean up, by the clock: on a crowded machine each sleep takes longer.
GRACE_S = 10
#: A program that is ended in the middle gets this long to remove what it has half written.
TERM_S = 2.0

#: Each input line lists the living groups, ``HASTY.../GRACEFUL...``; input ends with the launcher.
#: A leader that init has not reaped yet counts as gone. A shell takes 1 MB, an interpreter 10.
SHELL = "/bin/sh"
SCRIPT = """
trap '' HUP INT TERM
while IFS=/ read -r hasty graceful; do
  hasty_left=$hasty graceful_left=$graceful
done
for group in $hasty_left; do kill -s KILL -- "-$group"; done
read -r now _ < /proc/uptime
until=$((${now%.*} + $1))
for group in $graceful_left; do
  while read -r leader < "/proc/$group/stat" && read -r now _ < /proc/uptime; do
    [ "${now%.*}" -lt "$until" ] || break
    case $leader in *") Z "*) break ;; esac
    sleep 0.1
  done
  kill -s KILL -- "-$group"
done
shift
rm -rf -- "$@"
"""


class Guard:
    """A shell process that waits for the launcher's end, of whatever cause.

    Args:
        leftovers: absolute paths of files and folders to remove after the last process.

    Raises:
        Unguarded: the shell cannot be started.
    """

    def __init__(self, leftovers: Sequence[Path] = ()) -> None:
        self._groups: dict[int, bool] = {}
        script = [SHELL, "-c", SCRIPT, "spreeze-guard", str(GRACE_S), *map(str, leftovers)]
        null = subprocess.DEVNULL
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": null, "stderr": null}
        try:
            self._shell = subprocess.Popen(script, bufsize=0, start_new_session=True, **pipes)
        except OSError as error:
            raise Unguarded(SHELL, error.strerror or error) from error

    def add(self, group: int, *, graceful: bool) -> None:
        """Watch a process group; a graceful one gets time before it is killed."""
        self._groups[group] = graceful
        self._send_groups()

    def remove(self, group: int) -> None:
        """Stop watching a group, which has ended."""
        self._groups.pop(group, None)
        self._send_groups()

    def close(self) -> None:
        """End the shell, which kills every group that is still watched."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(GRACE_S + 1)
        except subprocess.TimeoutExpired:
            self._shell.send_signal(signal.SIGKILL)
            self._shell.wait()

    def _send_groups(self) -> None:
        hasty = " ".join(str(group) for group, graceful in self._groups.items() if not graceful)
        graceful = " ".join(str(group) for group, graceful in self._groups.items() if graceful)
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the shell was killed; the parent-death signal remains
            self._shell.stdin.write(f"{hasty}/{graceful}\n".encode())


@contextlib.contextmanager
def guarded(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a program in a session of its own. Where this block raises or this process ends, whatever ends
    it, the program ends, and with it all that it has started: a compiler is the child of its driver, which
    nobody is bound to.

    Args:
        command: the program and its arguments.
        options: further arguments of ``subprocess.Popen``.

    Raises:
        OSError: it cannot be started.
        Unguarded: nothing would end it.
    """
    guard = Guard()
    try:
        with subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: guard.add(os.getpid(), graceful=False),  # before it can start anything
            **options,
        ) as process:
            try:
                yield process
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)  # what is half written is removed
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(TERM_S)
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        guard.remove(process.pid)
    finally:
        guard.close()


def run_guarded(
    command: Sequence[str], *, timeout: float, text: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as :func:`guarded`; what it prints is caught.

    Args:
        command: the program and its arguments.
        timeout: seconds until it is killed.
        text: its standard input; by default this process's.
        options: further arguments of ``subprocess.Popen``.

    Raises:
        OSError, Unguarded: as :func:`guarded`.
        TimeoutExpired: it was killed.
    """
    pipe = subprocess.PIPE
    options |= {"stdout": pipe, "stderr": pipe, "stdin": None if text is None else pipe, "text": True}
    with guarded(command, **options) as process:
        output, errors = process.communicate(text, timeout)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
