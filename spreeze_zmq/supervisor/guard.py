"""Cleans up after a launcher that was killed: ends its process groups and removes its sockets' folder."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: Seconds that graceful groups get to clean up, by the clock: on a crowded machine each sleep takes longer.
GRACE_S = 10

#: Each input line lists the living groups, ``HASTY.../GRACEFUL...``; input ends with the launcher.
#: A leader that init has not reaped yet counts as gone. A shell takes 1 MB, an interpreter 10.
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
    """

    def __init__(self, leftovers: Sequence[Path] = ()) -> None:
        self._groups: dict[int, bool] = {}
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "spreeze-guard", str(GRACE_S), *map(str, leftovers)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

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
