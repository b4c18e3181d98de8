"""The head's half: machines join over one channel, and their processes are supervised as the head's own."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq.base.endpoints import Keys
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.provenance import installed
from spreeze_zmq.nodes.archive import Archive
from spreeze_zmq.nodes.errands import KINDS as ERRANDS
from spreeze_zmq.nodes.exchange import Exchange
from spreeze_zmq.nodes.leases import Leases
from spreeze_zmq.nodes.node import (
    Gone,
    Joined,
    Node,
    NodeEvent,
    NotWritten,
    Prepares,
    RemoteProcess,
    add_to_log,
)
from spreeze_zmq.nodes.packages import difference, may_take
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import MOST_LENT, SAMPLER
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.versions import newest_version
from spreeze_zmq.supervisor import ProcessSpec
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Router, make_keys

#: The messages of the channel.
KINDS = ("join", "welcome", "start", "signal", "beat", "ended", *ERRANDS, "leave")
BEAT_S = 0.5
#: A node that was not heard for this time is lost; it ends its processes itself after ``HEAD_LOST_S``.
LOST_S, HEAD_LOST_S = 5.0, 10.0
#: Until its first beat a machine unpacks and builds what the run needs, for this time at most; the user hears
#: of one that takes longer than a moment, and each such moment it is tried whether its connection stands.
PREPARES_S, MOMENT_S = 600.0, 5.0
#: Codes of ``leave``, and exit codes of ``spreeze join``.
OVER, REFUSED, HEAD_LOST = 0, 2, 3


#: Longest time for which messages are handled before the launcher does its other work.
SERVE_AT_MOST_S = 0.1


class Nodes:
    """The machines of a run, as its launcher sees them. It starts processes there as a ``Spawner``.

    Args:
        plan: placed, with a remote address for each channel.
        address: to bind, ``tcp://HOST:PORT``.
        files: the user's, as a bundle.
        keys: of the channel.
        exchange: passes on what the placed roles bind; None where they bind nothing.
        guests: the folder of the public keys that the run's other channels accept.
        clock: monotonic seconds.

    Attributes:
        lent: the machines that have joined, by name.
        leases: the names of processes there.
    """

    def __init__(
        self,
        plan: Plan,
        address: str,
        files: bytes,
        keys: Keys,
        guests: Path,
        *,
        incarnation: int,
        exchange: Exchange | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exchange = exchange
        self._plan, self._server, self._guests, self._clock = plan, keys.public, guests, clock
        self._files = files
        self._packages = installed()
        self.router = Router(
            address, sender="launcher", incarnation=incarnation, bind=True, kinds=KINDS, keys=keys
        )
        self._numbers = itertools.count(1)
        self._places: dict[str, Node] = {}
        self.lent: dict[str, Node] = {}
        self.leases = Leases(Path(plan.socket_dir), clock)

    # --- processes

    def place(self, name: str, node: Node) -> None:
        """Have the process ``name`` run on a node from now on."""
        self._places[name] = node

    def holds(self, name: str) -> bool:
        """Whether a process has its place on a node."""
        return name in self._places

    def place_of(self, name: str) -> Node | None:
        """The node on which a process has its place."""
        return self._places.get(name)

    def fitting(self, wanted: str, role: str = "") -> Node | None:
        """The machine for a role, of those with fewest roles the one with most cores; None if none fits.

        Args:
            wanted: a value of the plan's placement.
            role: no machine gets two processes of it.
        """
        having = {id(node) for name, node in self._places.items() if name.rpartition("-")[0] == role}
        fit = [
            node
            for node in self.lent.values()
            if node.has_beaten and id(node) not in having and may_take(node.host, wanted)
        ]
        placed = [
            self._places[name] for name in self._places if name.rpartition("-")[0] in self._plan.placement
        ]
        return max(fit, key=lambda node: (-placed.count(node), node.cores), default=None)

    def spawn(self, spec: ProcessSpec) -> RemoteProcess:
        """Start a process on its node; its log here begins with where it runs."""
        node = self._places[spec.name]
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        header = f"--- {now} on {node.host} ({node.name}), which sends its last lines\n"
        begin = add_to_log(spec.log_path, header)
        process = RemoteProcess(spec, begin, lambda message: self._send(node, message))
        node.processes[spec.name] = process
        fields = {"name": spec.name, "nice": spec.nice, "threads": spec.threads}
        if self.leases.begin(spec.name):
            fields["again"] = True
        if version := newest_version(Path(self._plan.socket_dir)):
            fields["policy_version"] = version
        self._send(node, Message("start", {**fields, "orphaned": int(spec.parent_death_signal)}))
        return process

    # --- machines

    def serve(self) -> list[NodeEvent]:
        """Handle what the machines have sent, and find those that are silent; never waits.

        Raises:
            ChannelError: what placed processes bind is passed on no more.
        """
        events: list[NodeEvent] = []
        if self._exchange is not None:
            events += map(NotWritten, self._exchange.check())
        until_s = time.monotonic() + SERVE_AT_MOST_S
        while time.monotonic() < until_s and (received := self.router.receive()) is not None:
            peer, message = received
            if message.kind == "join":
                events += self._on_join(peer, message.fields)
            elif node := next((node for node in self.lent.values() if node.peer == peer), None):
                node.heard_s = self._clock()
                events += self._hear(node, message)
            else:  # a machine that was given up: what it runs is of no use
                self.router.send(peer, Message("leave", {"code": HEAD_LOST, "reason": "it was given up"}))
        for node in list(self.lent.values()):
            events += map(NotWritten, node.archive.serve() if node.archive is not None else ())
            patience_s = LOST_S if node.has_beaten else PREPARES_S
            silent_s = self._clock() - node.heard_s
            if silent_s > patience_s:
                events.append(self._lose(node, f"not heard for {patience_s:.0f} s"))
            elif silent_s > MOMENT_S and not node.has_beaten:
                events += self._await(node)
        return events

    def _await(self, node: Node) -> list[NodeEvent]:
        """Look whether a machine that prepares itself, and says nothing meanwhile, is still there."""
        events: list[NodeEvent] = [] if node.is_slow else [Prepares(node)]
        node.is_slow = True
        if self._clock() >= node.next_look_s:
            node.next_look_s = self._clock() + MOMENT_S
            if not self.router.send(node.peer, Message("beat")):
                events.append(self._lose(node, "its connection ended while it prepared itself"))
        return events

    def give_up(self, name: str, how: str) -> Gone:
        """Turn out the machine on which a process fails again and again; it does not come back by itself."""
        return self._lose(self._places[name], how, REFUSED)

    def postpone(self) -> None:
        """Hear every machine now, after the launcher itself was stopped for a time."""
        for node in self.lent.values():
            node.heard_s = self._clock()

    def close(self, reason: str) -> None:
        """Tell every machine that the run is over."""
        for node in list(self.lent.values()):
            self._send(node, Message("leave", {"code": OVER, "reason": reason}))
            if node.archive is not None:
                node.archive.close()
        self.router.close()
        if self._exchange is not None:
            self._exchange.close()

    def _send(self, node: Node, message: Message) -> None:
        self.router.send(node.peer, message)

    def _on_join(self, peer: bytes, fields: Mapping[str, Any]) -> list[NodeEvent]:
        host = "".join(filter(str.isprintable, fields["host"]))[:80]
        samples = fields.get("samplers") != 0
        if why := difference(self._plan, self._packages, fields["packages"], host=host, samples=samples):
            self.router.refusals.refuse(WireError("other_release", why), host, "join")
            self.router.send(peer, Message("leave", {"code": REFUSED, "reason": why}))
            return []
        events: list[NodeEvent] = []
        if former := self.lent.get(fields["before"]):
            events.append(self._lose(former, "it has joined again"))
        cores = fields["cores"]
        most = fields.get("samplers", max(cores, self._plan.components[SAMPLER].count.maximum))
        most = 0 if self._plan.offline else most
        node = Node(f"node-{next(self._numbers)}", host, cores, min(most, MOST_LENT), peer, self._clock())
        node.owes = fields.get("owes", False)
        keys = make_keys()
        (self._guests / node.name).write_text(keys.public)
        welcome = {"node": node.name, "public": keys.public, "secret": keys.secret, "server": self._server}
        arrays = {
            "plan": np.frombuffer(self._plan.to_json().encode(), np.uint8),
            "bundle": np.frombuffer(self._files, np.uint8),
        }
        self.router.send(peer, Message("welcome", welcome, arrays))
        self.lent[node.name] = node
        node.archive = Archive(
            RunFolder(Path(self._plan.run_dir)),
            self._plan.run.resume_from,
            lambda message: self._send(node, message),
            lambda name: self._places.get(name) is node,
        )
        return events

    def _hear(self, node: Node, message: Message) -> list[NodeEvent]:
        fields = message.fields
        if message.kind == "beat":
            events: list[NodeEvent] = [] if node.has_beaten else [Joined(node)]
            node.has_beaten, node.owes = True, fields.get("owes", False)
            node.is_leaving = fields.get("leaving", False)
            for name in ("busy", "memory_bytes", "sent_bytes_per_s", "received_bytes_per_s"):
                setattr(node, name, fields.get(name, 0))
            for name, row in fields.get("processes", {}).items():
                if process := node.processes.get(name):
                    process.pid, process.has_printed = row.get("pid", 0), row.get("printed") is True
                    if type(incarnation := row.get("incarnation")) is int:
                        self.leases.note(name, incarnation)
            self._send(node, Message("beat"))
            return events
        if message.kind == "ended" and (process := node.processes.pop(fields["name"], None)):
            if node.is_leaving:  # as its machine has asked it to, which says that itself
                add_to_log(process.spec.log_path, fields["log"])
            else:
                process.end(fields.get("code", -fields.get("signal", signal.SIGKILL)), fields["log"])
        elif message.kind in ERRANDS and node.archive is not None:
            return self._handle_files(node, node.archive, message)
        elif message.kind == "leave":
            return [replace(self._lose(node, fields["reason"][:200]), code=fields["code"])]
        return []

    def _handle_files(self, node: Node, archive: Archive, message: Message) -> list[NodeEvent]:
        try:
            archive.hear(message)
        except WireError as error:
            self.router.refuse(error, node.host, message.kind)
        except OSError as error:
            about = str(message.fields["about"]).rpartition(".")[0]
            return [NotWritten(f"{about}: {error.filename}: {error.strerror}; the run goes on without it")]
        return []

    def _lose(self, node: Node, how: str, code: int = HEAD_LOST) -> Gone:
        """Give a machine up: its key opens nothing any more."""
        del self.lent[node.name]
        if node.archive is not None:
            node.archive.close()
        (self._guests / node.name).unlink(missing_ok=True)
        names = tuple(name for name, there in self._places.items() if there is node)
        for name in names:
            del self._places[name]
            if self._exchange is not None:
                self._exchange.fence(name.rpartition("-")[0])
        reason = how if code == REFUSED else "it was given up"
        self._send(node, Message("leave", {"code": code, "reason": reason}))
        return Gone(node, how, names, code)
