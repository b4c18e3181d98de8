"""What a run opens for other machines: an address and a port for each channel, and keys of its own.

The pair of the head and that of whoever is invited are made for one run and stay in files that only the user
may read: ``KEYS_FILE`` in the folder of the run's sockets, and ``join.key`` in the run's folder, which opens
the channel ``nodes`` alone. A node gets a pair of its own over that channel.
"""

from __future__ import annotations

import contextlib
import errno
import random
import re
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from spreeze_zmq.base.endpoints import Keys, is_address, write_keys
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import claim
from spreeze_zmq.nodes.bundle import bundle
from spreeze_zmq.nodes.placers import Way
from spreeze_zmq.plan.plan import KEYS_FILE, Plan
from spreeze_zmq.wire.channels import make_keys

#: Ports that are tried where none is named: below those that Linux gives to outgoing connections.
FREE_PORTS = (20_000, 32_767)
#: The folder of the public keys of nodes, beside the head's keys, and the invitation's.
GUESTS, INVITED = "guests", "invited"
_ADDRESS = re.compile(r"(?P<host>[^:]*)(:(?P<first>\d{1,5})(-(?P<last>\d{1,5}))?)?")


@dataclass(frozen=True)
class Listening:
    """Where a run listens for other machines.

    Attributes:
        plan: with the remote address of each channel.
        address: of the channel ``nodes``, ``tcp://HOST:PORT``.
        bundle: the user's files that the others need, see :func:`bundle`.
        ways: the commands that make other machines join.
        words: of the command line that asked for it.
        claims: keep its ports from other runs, also before their sockets are bound.
    """

    plan: Plan
    address: str
    bundle: bytes
    ways: tuple[Way, ...] = ()
    words: tuple[str, ...] = ()
    claims: tuple[socket.socket, ...] = ()

    @classmethod
    def at(cls, text: str, plan: Plan, ways: tuple[Way, ...] = (), nodes: str | None = None) -> Listening:
        """An address for every channel of a plan.

        Args:
            text: ``HOST``, ``HOST:PORT`` or ``HOST:FIRST-LAST``, as on the command line.
            plan: of the run.
            ways: the commands that make other machines join.
            nodes: ``--nodes``, which asked for these.

        Raises:
            InputError: it is no address of this machine, too few of its ports are free, or the run needs more
                of the user's files than can be sent.
        """
        match = check_listening(text, plan)
        host = match["host"]
        names = list(plan.channels)
        passed_on = [name for name in names if plan.channels[name].binds in plan.placement]
        files = bundle(plan, sys.path)
        ports = _claimed_ports(text, host, 1 + len(names) + len(passed_on), _candidates(match))
        remotes = [f"tcp://{host}:{port}" for port in ports]
        backs = dict(zip(passed_on, remotes[1 + len(names) :], strict=True))
        channels = {
            name: replace(plan.channels[name], remote=remote, back=backs.get(name, ""))
            for name, remote in zip(names, remotes[1:], strict=False)
        }
        words = ("--listen", text, *(("--nodes", nodes) if nodes else ()))
        return cls(replace(plan, channels=channels), remotes[0], files, ways, words, tuple(ports.values()))

    def close(self) -> None:
        """Leave the ports to other runs."""
        for held in self.claims:
            held.close()


def need_no_machine(plan: Plan, *, may_listen: bool = True) -> None:
    """Raise InputError for a run that does not listen, and has a role for a machine that joins.

    Args:
        plan: of the run.
        may_listen: the command that starts it has ``--listen``.
    """
    for role, wanted in plan.placement.items():
        raise InputError(
            f'placement.{role} = "{wanted}": it needs another machine, and this run listens for none: '
            f"{'give --listen ADDRESS, or ' * may_listen}set placement.{role} to head"
        )


def make_key_files(sockets: Path, invitation: Path) -> tuple[Keys, Path]:
    """Write the head's keys and the invitation of a run; returns the keys of the channel ``nodes``, and the
    folder of the nodes' public keys.

    Args:
        sockets: the folder of the run's sockets.
        invitation: the file for whoever may join.
    """
    head, invited = make_keys(), make_keys()
    guests, hosts = sockets / GUESTS, sockets / INVITED
    for folder in (guests, hosts):
        folder.mkdir(mode=0o700)
    (hosts / "key").write_text(invited.public)
    write_keys(replace(head, guests=str(guests)), sockets / KEYS_FILE)
    write_keys(replace(invited, server=head.public), invitation)
    return replace(head, guests=str(hosts)), guests


def check_listening(text: str, plan: Plan) -> re.Match[str]:
    """The parts of an address; opens nothing.

    Raises:
        InputError: it is none, or no other machine can join the run.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not is_address(match["host"]) or (match["first"] and int(match["first"]) == 0):
        raise InputError(
            f"--listen {text}: expected the IPv4 address of this machine that the others reach, "
            "such as 192.168.1.10, 192.168.1.10:5550 or 192.168.1.10:5550-5589"
        )
    if plan.balance.in_order:
        raise InputError(
            f"--listen {text}: a run in order repeats itself, with a fixed number of samplers: "
            "take another balance.mode, or leave --listen out"
        )
    if own := [name for name, channel in plan.channels.items() if (channel.endpoint or "").startswith("tcp")]:
        raise InputError(
            f"--listen {text} gives every channel an address, and the topology gives {', '.join(own)} one "
            "already: leave that endpoint out"
        )
    return match


def _candidates(match: re.Match[str]) -> Iterable[int]:
    """The ports to try, in turn."""
    if match["first"] is None:
        return random.sample(range(*FREE_PORTS), 200)
    first = int(match["first"])
    return range(first, min(int(match["last"] or first + 63), 65_535) + 1)


def _claimed_ports(text: str, host: str, count: int, candidates: Iterable[int]) -> dict[int, socket.socket]:
    """The first ports that are free and that no other run has claimed, each with what claims it."""
    found: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as failed:
        for port in candidates:
            if _is_free(text, host, port) and (held := claim(f"port-{host}:{port}")) is not None:
                found[port] = failed.enter_context(held)
            if len(found) == count:
                failed.pop_all()
                return found
    raise InputError(f"--listen {text}: {len(found)} of its ports are free, {count} are needed")


def _is_free(text: str, host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise InputError(f"--listen {text}: this machine does not have that address") from None
            return False
    return True
