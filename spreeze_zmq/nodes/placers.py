"""Starts ``spreeze join`` on other machines: over ssh, for two desktops, by Ray or by Slurm."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.nodes.slurm import other_nodes, over_srun
from spreeze_zmq.supervisor import Exited, GaveUp, ProcessSpec, Supervisor

#: The variable with another ssh command, such as ``ssh -p 2222``.
SSH_VARIABLE = "SPREEZE_SSH"
#: Restarts of a command that ends too early within a window in seconds.
RESTARTS, WINDOW_S = 10, 600.0
#: Stands for the head's address in a command.
HEAD = "{head}"
#: Gives a program its key on standard input.
_WITH_KEY = 'key=$1; shift; exec "$@" < "$key"'
#: On the other machine: the program at the head's own path, as in a shared home, else the one in the PATH.
_THERE = "if [ -x {here} ]; then exec {here} join {head}; else exec spreeze join {head}; fi"
#: What ``spreeze join`` says of each membership.
_JOINED = re.compile(r"^joined .* as (node-\d+) with ", re.MULTILINE)
_RAY = re.compile(r"ray(:(?P<address>[\w.-]+:\d{1,5}))?(?P<labels>(,[\w./-]+=[\w.-]*)*)")
_EXPECTED = (
    "expected ssh:HOST or ssh:HOST,HOST, as ssh takes them, or ray, ray:HOST:PORT or ray,LABEL=VALUE, "
    "or slurm"
)


@dataclass(frozen=True)
class Way:
    """A command that makes one machine or several join, and that gets the run's key on standard input.

    Attributes:
        name: of the machine or machines, as in the lines about it.
        command: with ``HEAD`` for the head's address.
        prefix: lines of its output that begin so are shown to the user; empty for none.
    """

    name: str
    command: tuple[str, ...]
    prefix: str = ""

    def spec(self, head: str, invitation: Path, logs: Path) -> ProcessSpec:
        """How to start it."""
        words = (word.replace(HEAD, head) for word in self.command)
        command = ("/bin/sh", "-c", _WITH_KEY, "sh", str(invitation), *words)
        log = logs / f"{self.name.replace(' ', '-')}.log"
        return ProcessSpec(self.name, command, log, max_restarts=RESTARTS, restart_window_s=WINDOW_S)


def read_nodes(text: str, listen: str, *, in_job: bool = True) -> tuple[Way, ...]:
    """The machines of ``--nodes``.

    Args:
        text: ``ssh:HOST,HOST``, or ``ray``, ``ray:HOST:PORT`` with labels behind it, or ``slurm``.
        listen: the address at which the run listens.
        in_job: for ``slurm``: this is its job; else its nodes are not known yet, and there are none.

    Raises:
        InputError: it is no such text, Ray is not installed, this is no job of Slurm, or the run does not
            listen.
    """
    nodes = other_nodes() if text == "slurm" and in_job else []
    if not listen:
        raise InputError(f"--nodes {text}: give --listen ADDRESS too, at which they reach this machine")
    if text == "slurm":
        return tuple(Way(f"srun {node}", over_srun(node, HEAD)) for node in nodes)
    kind, _, hosts = text.partition(":")
    if kind == "ssh":
        return tuple(Way(f"ssh {host}", _over_ssh(host)) for host in _hosts(text, hosts))
    if match := _RAY.fullmatch(text):
        return (_by_ray(match),)
    raise InputError(f"--nodes {text}: {_EXPECTED}")


def _hosts(text: str, hosts: str) -> Sequence[str]:
    names = list(filter(None, (name.strip() for name in hosts.split(","))))
    if not names or any(name.startswith("-") or " " in name for name in names):
        raise InputError(f"--nodes {text}: {_EXPECTED}")
    if len(set(names)) < len(names):
        raise InputError(f"--nodes {text}: a host is named twice: leave it out once")
    return names


def _over_ssh(host: str) -> tuple[str, ...]:
    """The command that logs in, without a question to a person."""
    here = shlex.quote(str(Path(sys.executable).with_name("spreeze")))
    there = _THERE.replace("{here}", here)
    return (*shlex.split(os.environ.get(SSH_VARIABLE, "ssh")), "-o", "BatchMode=yes", host, there)


def _by_ray(match: re.Match[str]) -> Way:
    """The program that talks with Ray, which is not imported here: it brings threads and signal handlers."""
    if importlib.util.find_spec("ray") is None:
        raise InputError(f"--nodes {match[0]}: Ray is not installed here: pip install 'spreeze_zmq[ray]'")
    labels = filter(None, match["labels"].split(","))
    program = (*PROGRAM, "spreeze_zmq.nodes.by_ray")
    return Way("ray", (*program, match["address"] or "auto", HEAD, *labels), prefix="ray: ")


@dataclass(frozen=True)
class Absent:
    """A command whose machine is not part of the run.

    Attributes:
        way: its name.
        node: the machine's last name in the run; empty if it has had none.
        why: the command's last words, or how it has failed where it has said none.
        has_failed: whether it was part of the run, or the command has failed, so that it is not only late.
    """

    way: str
    node: str
    why: str
    has_failed: bool


class Placer:
    """Keeps the commands running until the run ends.

    Args:
        ways: the commands.
        address: of the head.
        invitation: the run's key.
        logs: the folder of the run's logs.
    """

    def __init__(self, ways: Sequence[Way], address: str, invitation: Path, logs: Path) -> None:
        self._supervisor = Supervisor()
        self._talks: dict[str, Talk] = {}
        self._logs: dict[str, Path] = {}
        self._failed: dict[str, str] = {}
        for way in ways:
            spec = way.spec(address, invitation, logs)
            self._supervisor.start(spec)
            self._logs[way.name] = spec.log_path
            if way.prefix:
                self._talks[way.name] = Talk(spec.log_path, way.prefix)

    def poll(self) -> list[str]:
        """A line for each command that has ended since the last call, and those for the user; never waits."""
        lines = [line for talk in self._talks.values() for line in talk.lines()]
        for event in self._supervisor.poll():
            if isinstance(event, Exited) and not event.expected:
                last = [] if event.name in self._talks else event.words.strip().splitlines()[-1:]
                again = "; it is tried again" if event.restarting and event.code != 0 else ""
                lines.append(f"{event.name}: {(last or [event.how])[0]}{again} ({event.log_path})")
                self._failed[event.name] = event.how
                if event.code == 0:  # somebody there took the machine back
                    self._supervisor.stop([event.name])
                    del self._logs[event.name]
            elif isinstance(event, GaveUp):
                lines.append(str(event))
                self._failed[event.name] = event.reason
        return lines

    def absent(self, lent: Collection[str]) -> list[Absent]:
        """The commands whose machine is not part of the run; of Ray, which places several, the one that was
        given up.

        Args:
            lent: the names of the machines that are.
        """
        found = []
        for name, log in self._logs.items():
            said = log.read_text(errors="replace") if log.exists() else ""  # its disk was full
            node = ["", *_JOINED.findall(said)][-1]
            is_kept = name in self._talks and self._supervisor.alive([name])
            if node not in lent and not is_kept:
                words = [line for line in said.splitlines() if line.strip() and not line.startswith("--- ")]
                last = [self._failed.get(name, "it has not joined yet"), *words][-1]
                why = last + f" ({log})" * bool(said)
                found.append(Absent(name, node, why, bool(node) or name in self._failed))
        return found

    def close(self) -> None:
        """End what is left."""
        self._supervisor.close()


class Talk:
    """The lines of a growing log that are for the user: those that begin with a prefix."""

    def __init__(self, log: Path, prefix: str) -> None:
        self._log, self._prefix, self._read = log, prefix, 0

    def lines(self) -> list[str]:
        """Those that are new and whole."""
        if not self._log.exists():  # its disk is full, and its command has not begun
            return []
        with self._log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        lines = new.decode("utf-8", errors="replace").splitlines()
        return [line for line in lines if line.startswith(self._prefix)]
