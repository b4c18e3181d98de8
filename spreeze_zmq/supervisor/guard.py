"""Outlives the launcher and kills what it leaves behind: the signal of the kernel reaches children only."""

from __future__ import annotations

import contextlib
import signal
import subprocess

#: Seconds that groups which clear up after themselves get for it, in tenths.
GRACE_TENTHS = 100

#: Each line names the groups that live, hasty ones before the slash; the end of the input is the launcher's.
#: A leader that init has not reaped yet counts as gone. A shell takes 1 MB where an interpreter takes 10.
SCRIPT = """
trap '' HUP INT TERM
while IFS=/ read -r hasty graceful; do
  hasty_left=$hasty graceful_left=$graceful
done
for group in $hasty_left; do kill -s KILL -- "-$group"; done
tenths=$1
for group in $graceful_left; do
  while [ "$tenths" -gt 0 ] && read -r leader < "/proc/$group/stat"; do
    case $leader in *") Z "*) break ;; esac
    sleep 0.1
    tenths=$((tenths - 1))
  done
  kill -s KILL -- "-$group"
done
"""


class Guard:
    """A shell that waits for the end of the launcher, however that comes."""

    def __init__(self, grace_tenths: int = GRACE_TENTHS) -> None:
        self._groups: dict[int, bool] = {}
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "spreeze-guard", str(grace_tenths)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, group: int, *, graceful: bool) -> None:
        """Watch over a group; a graceful one gets time before it is killed."""
        self._groups[group] = graceful
        self._tell()

    def remove(self, group: int) -> None:
        """This group is no more."""
        self._groups.pop(group, None)
        self._tell()

    def close(self) -> None:
        """Let the shell end; whatever is still watched over is killed."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(GRACE_TENTHS / 10 + 1)
        except subprocess.TimeoutExpired:
            self._shell.send_signal(signal.SIGKILL)
            self._shell.wait()

    def _tell(self) -> None:
        hasty = " ".join(str(group) for group, graceful in self._groups.items() if not graceful)
        graceful = " ".join(str(group) for group, graceful in self._groups.items() if graceful)
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed it; the kernel's own signal remains
            self._shell.stdin.write(f"{hasty}/{graceful}\n".encode())
