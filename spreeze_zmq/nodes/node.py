"""A machine that was lent, the processes on it, and what becomes of it, as the head knows them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spreeze_zmq.base.files import append_text
from spreeze_zmq.nodes.archive import Archive
from spreeze_zmq.supervisor import ProcessSpec
from spreeze_zmq.wire import Message


class RemoteProcess:
    """A process on a node, for the supervisor.

    Attributes:
        pid: on its machine; 0 until the node has told.
        log_start: the byte of its log here at which it begins; the log's tail comes when it has ended.
        has_printed: whether anything has been written to its standard output.
    """

    def __init__(self, spec: ProcessSpec, log_start: int, send: Callable[[Message], object]) -> None:
        self.spec, self.log_start, self._send = spec, log_start, send
        self.pid, self.has_printed = 0, False
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives, as far as is known here."""
        return self._code

    def signal(self, number: int) -> None:
        """Have the node send a signal to its group."""
        self._send(Message("signal", {"name": self.spec.name, "number": int(number)}))

    def end(self, code: int, log: str) -> None:
        """Note its end, and the tail of its log."""
        add_to_log(self.spec.log_path, log)
        self._code = code


def add_to_log(path: Path, text: str) -> int:
    """Add to the log that a process elsewhere has here, unless its disk is full or it cannot be written: the
    whole one is on its machine. Returns the size.
    """
    with contextlib.suppress(OSError):
        with append_text(path) as log:
            log.write(text)
        return path.stat().st_size
    return 0


@dataclass
class Node:
    """A machine that was lent.

    Attributes:
        name: unique in the run; a machine that comes back has another one.
        host: as the machine calls itself.
        cores: that a run may use.
        most: the most samplers that it may run.
        peer: address of its connection.
        heard_s: when it was heard last, by the clock of :class:`Nodes`.
        has_beaten: whether it has told of its load, as it does once it is prepared; then things run there.
        is_slow: whether the user was told that it takes long to prepare itself.
        next_look_s: when it is tried next whether it is still there, while it prepares itself.
        is_leaving: whether it ends its processes, to leave the run then.
        owes: whether what it sent before it was given up is still on its way here.
        busy: cores that are busy there.
        memory_bytes: in use there.
        sent_bytes_per_s: by its processes to the head; ``received_bytes_per_s`` from it.
        wanted: the names of the samplers that shall run there.
        processes: those that run, by name.
        archive: the run's files for them.
    """

    name: str
    host: str
    cores: int
    most: int
    peer: bytes
    heard_s: float
    has_beaten: bool = False
    is_slow: bool = False
    next_look_s: float = 0.0
    is_leaving: bool = False
    owes: bool = False
    busy: float = 0.0
    memory_bytes: int = 0
    sent_bytes_per_s: float = 0.0
    received_bytes_per_s: float = 0.0
    wanted: list[str] = field(default_factory=list)
    processes: dict[str, RemoteProcess] = field(default_factory=dict)
    archive: Archive | None = None

    def about(self, *, gone: bool = False) -> dict[str, Any]:
        """The fields of ``machine``."""
        return {
            "node": self.name,
            "host": self.host,
            "cores": self.cores,
            "busy": self.busy,
            "memory_bytes": self.memory_bytes,
            "sent_bytes_per_s": self.sent_bytes_per_s,
            "received_bytes_per_s": self.received_bytes_per_s,
            "most": self.most,
            "samplers": len(self.wanted),
            "processes": list(self.processes),
            "gone": gone,
        }


@dataclass(frozen=True)
class Joined:
    """A machine has joined and is prepared; the launcher decides what runs there."""

    node: Node


@dataclass(frozen=True)
class Prepares:
    """A machine that has joined takes longer than a moment to unpack and build what the run needs."""

    node: Node


@dataclass(frozen=True)
class Gone:
    """A machine left or is lost, and with it the processes that had their place there, also those that wait
    for a restart.

    Attributes:
        code: ``OVER`` where it was taken back, ``REFUSED`` where what should run there failed, ``HEAD_LOST``
            where nothing is known.
    """

    node: Node
    how: str
    names: tuple[str, ...]
    code: int


@dataclass(frozen=True)
class NotWritten:
    """A file of a process elsewhere could not be written or read here, in one line."""

    line: str


NodeEvent = Joined | Prepares | Gone | NotWritten
