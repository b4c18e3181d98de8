"""Starts ``spreeze join`` on other machines: over ssh, for two desktops without a cluster."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.supervisor import Exited, GaveUp, ProcessSpec, Supervisor

#: The variable with another ssh command, such as ``ssh -p 2222``.
SSH_VARIABLE = "SPREEZE_SSH"
#: Restarts of a connection that breaks within a window in seconds.
RESTARTS, WINDOW_S = 10, 600.0
#: Gives a program its key on standard input.
_WITH_KEY = 'key=$1; shift; exec "$@" < "$key"'
#: On the other machine: the program at the head's own path, as in a shared home, else the one in the PATH.
_THERE = "if [ -x {here} ]; then exec {here} {words}; else exec spreeze {words}; fi"


def read_hosts(text: str, listen: str) -> tuple[str, ...]:
    """The machines of ``--nodes``, as ssh takes them.

    Args:
        text: ``ssh:HOST,HOST``.
        listen: the address at which the run listens.

    Raises:
        InputError: it is no such list, or the run does not listen.
    """
    kind, _, hosts = text.partition(":")
    names = tuple(filter(None, (name.strip() for name in hosts.split(","))))
    if kind != "ssh" or not names or any(name.startswith("-") or " " in name for name in names):
        raise InputError(f"--nodes {text}: expected ssh:HOST or ssh:HOST,HOST, as ssh takes them")
    if len(set(names)) < len(names):
        raise InputError(f"--nodes {text}: a host is named twice: leave it out once")
    if not listen:
        raise InputError(f"--nodes {text}: give --listen ADDRESS too, at which they reach this machine")
    return names


class SshPlacer:
    """Keeps a ``spreeze join`` running on each host until the run ends.

    Args:
        hosts: where.
        address: of the head.
        invitation: the run's key, which goes over ssh's standard input.
        logs: the folder of the run's logs.
    """

    def __init__(self, hosts: Sequence[str], address: str, invitation: Path, logs: Path) -> None:
        self._supervisor = Supervisor()
        for host in hosts:
            command = ("/bin/sh", "-c", _WITH_KEY, "sh", str(invitation), *_ssh(), host, _remote(address))
            log = logs / f"ssh-{host}.log"
            self._supervisor.start(
                ProcessSpec(f"ssh {host}", command, log, max_restarts=RESTARTS, restart_window_s=WINDOW_S)
            )

    def poll(self) -> list[str]:
        """A line for each connection that has ended since the last call; never waits."""
        lines = []
        for event in self._supervisor.poll():
            if isinstance(event, Exited) and not event.expected:
                last = event.words.strip().splitlines()[-1:] or [event.how]
                again = "; it is tried again" if event.restarting and event.code != 0 else ""
                lines.append(f"{event.name}: {last[0]}{again} ({event.log_path})")
                if event.code == 0:  # somebody there took the machine back
                    self._supervisor.stop([event.name])
            elif isinstance(event, GaveUp):
                lines.append(str(event))
        return lines

    def close(self) -> None:
        """End what is left."""
        self._supervisor.close()


def _ssh() -> Sequence[str]:
    """The command that logs in, without a question to a person."""
    return (*shlex.split(os.environ.get(SSH_VARIABLE, "ssh")), "-o", "BatchMode=yes")


def _remote(address: str) -> str:
    here = Path(sys.executable).with_name("spreeze")
    return _THERE.format(here=shlex.quote(str(here)), words=f"join {address}")
