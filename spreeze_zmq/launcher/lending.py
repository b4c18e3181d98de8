"""The machines that have joined a run, for its launcher: what runs there, and what is said of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spreeze_zmq.launcher import texts
from spreeze_zmq.launcher.crew import Crew
from spreeze_zmq.nodes.exchange import Exchange
from spreeze_zmq.nodes.head import OVER, REFUSED, Nodes
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.nodes.node import Gone, Joined, Node, NotWritten, Prepares
from spreeze_zmq.nodes.placers import Placer
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.run.folder import RunFolder

#: Longest time for which the end of a run waits for machines that were cut off: the kernel's pauses between
#: two tries reach 13 s in a cut of 20 s.
OWED_S = 15.0


def open_nodes(listening: Listening, plan: Plan, folder: RunFolder, incarnation: int) -> Nodes:
    """Write the keys of a run, and open the channel on which other machines join."""
    keys, guests = make_key_files(Path(plan.socket_dir), folder.invitation)
    exchange = Exchange(plan) if any(channel.back for channel in plan.channels.values()) else None
    address, files = listening.address, listening.bundle
    return Nodes(plan, address, files, keys, guests, incarnation=incarnation, exchange=exchange)


class Lending:
    """Has machines run samplers as long as they are part of the run.

    Args:
        nodes: the machines.
        listening: the addresses of the run, and the commands that make others join.
        folder: the run's folder.
        crew: starts the processes there, and forgets them with their machine.
        tell: sends a message of this kind and these fields to the broker.
        note: shows the user a line.
    """

    def __init__(
        self,
        nodes: Nodes,
        listening: Listening,
        folder: RunFolder,
        crew: Crew,
        tell: Callable[..., None],
        note: Callable[[str], None],
    ) -> None:
        self.nodes, self._crew, self._tell, self._note = nodes, crew, tell, note
        place = nodes.router.endpoint, folder.invitation, folder.logs
        self._placer = Placer(listening.ways, *place) if listening.ways else None
        self._listening = listening
        self.is_over = False
        self._awaits_until_s: float | None = None
        self._refused: list[dict[str, Any]] = []
        self._waiting: list[str] = []
        self._places: dict[str, Node] = {}
        self._gone: list[Gone] = []

    def serve(self) -> None:
        """Handle what the machines have sent; never waits."""
        for event in self.nodes.serve():
            if isinstance(event, NotWritten):
                self._note(event.line)
            elif isinstance(event, Joined):
                node = event.node
                self._forget_loss_of(node.host)
                if not self.is_over:
                    self._crew.fill()  # a member that waits for a machine comes before samplers
                self._crew.lend(node, 0 if self.is_over else node.cores)
                self._tell_of(node)
                self._note(texts.joined(node))
            elif isinstance(event, Prepares):
                self._note(texts.prepares(event.node))
            else:
                self._close(event)
        if not self.is_over:
            self._crew.fill()
            self._note_waiting()

    def scale(self, name: str, count: int, reason: str) -> None:
        """Have a machine run another number of samplers, as the broker asks; one that is gone has none."""
        if (node := self.nodes.lent.get(name)) is not None and not self.is_over:
            self._crew.lend(node, count)
            self._tell_of(node)
            self._note(reason)

    def show(self) -> None:
        """Tell the broker of each machine and of those refused, and the user of what makes others join."""
        for node in self.nodes.lent.values():
            if node.has_beaten:
                self._tell_of(node)
        if (refused := self.nodes.router.refusals.rows()) != self._refused:
            self._refused = refused
            self._tell("turned_away", refused=refused)
        for line in self._placer.poll() if self._placer is not None else ():
            self._note(line)

    def _tell_of(self, node: Node) -> None:
        """Tell the broker of a machine, which may run no more samplers than the run has room for."""
        self._tell("machine", **{**node.about(), "most": self._crew.most_of(node)})

    def may_lose(self, name: str) -> bool:
        """Whether a process runs elsewhere, and the run goes on without it if its machine is given up."""
        return self.nodes.holds(name) and not ROLES[name.rpartition("-")[0]].single

    def turn_out(self, name: str, why: str) -> tuple[str, ...]:
        """Give up the machine on which a process fails again and again; the run goes on. Returns the names of
        all that ran there.
        """
        self._close(gone := self.nodes.give_up(name, why))
        return gone.names

    def absent(self) -> tuple[dict[str, str], list[str]]:
        """What the run was asked to have, and has not now, each with the reason: a machine for a process, a
        machine of ``--nodes``, one where processes failed. And lines about what else is not there: a machine
        that was lent by hand, and is silent; one that has not joined yet.
        """
        found = {name: self._why_waiting(name) for name in self._crew.waiting}
        gone, silent = {event.node.name: event for event in self._gone}, []
        for absent in () if self._placer is None else self._placer.absent(self.nodes.lent):
            if event := gone.pop(absent.node, None):
                found[texts.called(event.node)] = event.how
            elif absent.has_failed:
                found[absent.way] = absent.why
            else:
                silent.append(f"{absent.way}: {absent.why}")
        for event in gone.values():
            if event.code == REFUSED:
                found[texts.called(event.node)] = event.how
            else:
                silent.append(f"{texts.gone(event.node, event.how, ())}, and has not come back")
        return found, silent

    def awaits(self) -> bool:
        """Whether the end of the run waits for what machines had sent before they lost the head, now that
        they are back; for ``OWED_S`` at most, and the user hears of it.
        """
        owing = [node for node in self.nodes.lent.values() if node.owes]
        if owing and self._awaits_until_s is None:
            self._awaits_until_s = time.monotonic() + OWED_S
            self._note(texts.owed(owing, OWED_S))
        return bool(owing) and self._awaits_until_s is not None and time.monotonic() < self._awaits_until_s

    def end(self, reason: str) -> None:
        """Tell the machines that the run is over, and leave its ports to others."""
        self.nodes.close(reason)
        if self._placer is not None:
            self._placer.close()
        self._listening.close()

    def _why_waiting(self, name: str) -> str:
        had = [texts.gone(event.node, event.how, ()) for event in self._gone if name in event.names]
        waits = texts.waits(name, self._crew.wanted_place(name), bool(self.nodes.lent))
        return "; ".join((waits.removeprefix(f"{name} "), *had[-1:]))

    def _forget_loss_of(self, host: str) -> None:
        """Note that a machine is part of the run again."""
        if back := next((event for event in self._gone if event.node.host == host), None):
            self._gone.remove(back)

    def _note_waiting(self) -> None:
        """Say once of each process that it waits for a machine, and on which one it runs."""
        waiting = self._crew.waiting
        for name in waiting:
            if name not in self._waiting:
                self._note(texts.waits(name, self._crew.wanted_place(name), bool(self.nodes.lent)))
        self._waiting = waiting
        places = {name: node for name in self._crew.placed if (node := self.nodes.place_of(name)) is not None}
        for name, node in places.items():
            if self._places.get(name) is not node:
                self._note(f"{name} runs on {node.host} ({node.name})")
        self._places = places

    def _close(self, event: Gone) -> None:
        """Close the books of a machine that is gone."""
        if event.code != OVER:
            self._gone.append(event)
        self._tell("machine", **event.node.about(gone=True))
        gone = self._crew.supervisor.alive(event.names)
        self._crew.supervisor.forget(gone)
        self._crew.miss(gone)
        for name in gone:
            self._tell("exited", name=name, how=f"is gone with {event.node.host}", restarting=False)
        self._note(texts.gone(event.node, event.how, gone))
