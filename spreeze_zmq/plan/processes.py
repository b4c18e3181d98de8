"""The parts of a plan about its processes: components, their numbers, and the channels between them.

Fields declared by ``option`` are keys of a topology, the others follow from them.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spreeze_zmq.base.endpoints import is_loopback
from spreeze_zmq.base.schema import option

#: The largest number of an option of ZeroMQ, which is a 32-bit integer.
MOST_OF_SOCKET = 2**31 - 1


@dataclass(frozen=True)
class Count:
    """Number of processes of a role: at the start, and the range in which it may change."""

    initial: int
    minimum: int
    maximum: int


@dataclass(frozen=True)
class ComponentPlan:
    """One role of the run.

    Attributes:
        folder: its folder, absolute.
        command: program and arguments; the run file and the process's index are appended.
        launched: the launcher starts it; else it is started by hand.
        on_demand: the launcher holds its port open and starts it at the first connection.
        channels: its end of each channel that it uses: ``push``, ``pull``, ``pub`` or ``sub``.
        options: the component's own.
    """

    folder: str
    command: tuple[str, ...]
    launched: bool
    on_demand: bool
    channels: dict[str, str]
    options: dict[str, Any]
    use: str = option("", 'a shipped component, or "./folder" beside the topology')
    count: Count = option("auto", "how many processes, or their range", type="count")
    threads: int = option("auto", "of numerical libraries, in each", minimum=1, words=("auto",))
    nice: int = option(0, "19 is the lowest priority", minimum=0, maximum=19)
    max_restarts: int = option(3, "restarts within restart_window_s; one more crash stops the run", minimum=0)
    restart_window_s: float = option(
        60.0, "the window of max_restarts, of time at work", type="duration", above=0
    )
    start_timeout_s: float = option(
        30.0, "deadline from its start until it is ready", type="duration", above=0
    )
    stop_grace_s: float = option(5.0, "from the request to stop until it is killed", type="duration", above=0)

    def by_hand(self, run_file: Path) -> str:
        """The shell command that starts one more process of this role."""
        if "/" not in self.use:  # shipped
            return f"{python()} -m spreeze_zmq.components.{self.use} {shlex.quote(str(run_file))}"
        return shlex.join((*self.command, str(run_file)))


def python() -> str:
    """This interpreter in a shell command: its name alone if the PATH leads to it, else its path."""
    name = Path(sys.executable).name
    return name if shutil.which(name) == sys.executable else shlex.quote(sys.executable)


@dataclass(frozen=True)
class ChannelPlan:
    """One channel of the run: a row of the table in ``plan.roles``, with the topology's options.

    Attributes:
        pattern: ``push_pull`` (each message to one peer, blocks at the high-water mark) or ``pub_sub`` (to
            all, drops at a slow subscriber, repeats the latest message for late joiners).
        binds: the role whose process binds the endpoint; it has the ``pull`` or ``pub`` end.
        connects: the roles whose processes connect.
        kinds: the message kinds on this channel.
        endpoint: the address that the binding process uses; ``None`` until the plan is placed.
        fields: the arrays of a rollout on an experience channel; empty on every other channel.
        curve: encrypted and authenticated, as tcp beyond loopback always is.
        remote: a tcp address that is bound beside the endpoint, for processes on other machines; empty
            where there is none.
        back: a tcp address at the head to which the role that binds connects instead, where it runs on
            another machine: the head binds ``endpoint`` and ``remote``, and passes on what comes. Empty where
            the role binds them itself.
        keys: file with the keys of the tcp endpoints; empty for the user's own.
    """

    pattern: str
    binds: str
    connects: tuple[str, ...]
    kinds: tuple[str, ...]
    fields: tuple[str, ...]
    endpoint: str | None = option(None, '"tcp://127.0.0.1:5555" or "ipc:///absolute/path"')
    high_water_mark: int = option(None, "messages queued at each end", minimum=1, maximum=MOST_OF_SOCKET)
    socket_buffer_bytes: int = option(
        None,
        "kernel buffer; 0 for the system's own, as beyond this machine",
        minimum=0,
        maximum=MOST_OF_SOCKET,
    )
    curve: bool = option(None, "encrypt tcp with `spreeze keys` (default: beyond this machine)")
    remote: str = ""
    back: str = ""
    keys: str = ""

    def at(self, endpoint: str | None) -> ChannelPlan:
        """This channel at ``endpoint``; beyond this machine with the system's own kernel buffers, since a
        connection carries at most a buffer in each round trip.
        """
        transport, _, address = (endpoint or "").partition("://")
        if transport == "tcp" and not is_loopback(address.rpartition(":")[0]):
            return replace(self, endpoint=endpoint, socket_buffer_bytes=0)
        return replace(self, endpoint=endpoint)
