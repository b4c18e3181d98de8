"""Cleans up after a process that was killed: ends the process groups that it started, and removes a run's
sockets' folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import Unguarded

#: Seconds that graceful groups get to clean up, by the clock: on a crowded machine each sleep takes longer.
GRACE_S = 10
#: A program that is ended in the middle gets this long to remove what it has half written.
TERM_S = 2.0

#: An input line is ``hasty NUMBER:GROUP``, ``graceful NUMBER:GROUP`` or ``gone NUMBER``; input ends with the
#: launcher. A leader that init has not reaped yet counts as gone. A shell takes 1 MB, an interpreter 10.
SHELL = "/bin/sh"
SCRIPT = """
trap '' HUP INT TERM
hasty=' ' graceful=' '
without() {
  left=$1
  case $left in *" $2:"*)
    after=${left#*" $2:"}
    left="${left%%" $2:"*} ${after#* }" ;;
  esac
}
while read -r word entry; do
  case $word in
    hasty) hasty="$hasty$entry " ;;
    graceful) graceful="$graceful$entry " ;;
    gone)
      without "$hasty" "$entry"
      hasty=$left
      without "$graceful" "$entry"
      graceful=$left ;;
  esac
done
for entry in $hasty; do kill -s KILL -- "-${entry#*:}"; done
read -r now _ < /proc/uptime
until=$((${now%.*} + $1))
for entry in $graceful; do
  group=${entry#*:}
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


class GuardedGroup:
    """A process group among those that a guard watches.

    Args:
        lines: where the guard reads.
        number: its own, since the id of a process that has ended becomes another's.
        graceful: whether it gets time to clean up.
    """

    def __init__(self, lines: socket.socket, number: int, graceful: bool) -> None:
        self.lines, self.number, self.graceful = lines, number, graceful

    def begin(self) -> None:
        """Have the group of this process watched; for its leader, before that starts anything or runs what
        another has written. All that the launcher could do is too late where it is killed.
        """
        self._send(f"{'graceful' if self.graceful else 'hasty'} {self.number}:{os.getpid()}\n")

    def end(self) -> None:
        """Have the group watched no longer: it has ended, or never began."""
        self._send(f"gone {self.number}\n")

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the shell was killed; the parent-death signal remains
            self.lines.send(line.encode(), socket.MSG_NOSIGNAL)


class Guard:
    """A shell process that waits for the launcher's end, of whatever cause.

    Args:
        leftovers: absolute paths of files and folders to remove after the last process.

    Raises:
        Unguarded: the shell cannot be started.
    """

    _numbers = itertools.count()

    def __init__(self, leftovers: Sequence[Path] = ()) -> None:
        try:
            self._lines, read = socket.socketpair()
        except OSError as error:
            raise Unguarded(SHELL, error.strerror or error) from error
        script = [SHELL, "-c", SCRIPT, "spreeze-guard", str(GRACE_S), *map(str, leftovers)]
        null = subprocess.DEVNULL
        try:
            self._shell = subprocess.Popen(
                script, stdin=read.fileno(), stdout=null, stderr=null, start_new_session=True
            )
        except OSError as error:
            self._lines.close()
            raise Unguarded(SHELL, error.strerror or error) from error
        finally:
            read.close()

    def group(self, *, graceful: bool = False) -> GuardedGroup:
        """A place for a process group that is about to be started; a graceful one gets time before it is
        killed.
        """
        return GuardedGroup(self._lines, next(self._numbers), graceful)

    def close(self) -> None:
        """End the shell, which kills every group that is still watched."""
        with contextlib.suppress(OSError):  # of a shell that was killed
            self._lines.shutdown(socket.SHUT_WR)  # a process that is about to be forked may hold it, too
        self._lines.close()
        try:
            self._shell.wait(GRACE_S + 1)
        except subprocess.TimeoutExpired:
            self._shell.send_signal(signal.SIGKILL)
            self._shell.wait()


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
    group = guard.group()
    try:
        with subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=group.begin,
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
        group.end()
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
