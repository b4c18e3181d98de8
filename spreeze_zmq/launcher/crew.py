"""The processes of a run: their wanted numbers, the ports that wait for a visitor."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path

from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.usage import starved_s
from spreeze_zmq.launcher import warm
from spreeze_zmq.launcher.deadlines import Deadlines
from spreeze_zmq.launcher.pinning import Pinning
from spreeze_zmq.launcher.threads import ThreadSpawner
from spreeze_zmq.nodes.head import Nodes
from spreeze_zmq.nodes.node import Node
from spreeze_zmq.nodes.placed import PlacedSpawner
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import LEARNERS, MEMBER, MOST_PROCESSES, ROLES, SAMPLER
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.page import address
from spreeze_zmq.supervisor import ProcessSpec, Supervisor, standing
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY


class Crew:
    """Starts and stops the processes of a run until each role has its wanted number.

    Args:
        plan: with its folders settled.
        folder: the run's folder.
        pinning: the cores of each process.
        nodes: the other machines; None where the run listens for none.
        threads: run components as threads of this process.
        shares: CPUs of the members that run here.

    Attributes:
        supervisor: supervises all processes.
        counts: the wanted number of processes of each role.
        deadlines: of getting ready and of reporting.
        ports: the ports of roles that start with their first visitor.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        pinning: Pinning,
        nodes: Nodes | None,
        *,
        threads: bool,
        shares: Mapping[str, frozenset[int]] = {},
    ) -> None:
        self._plan, self._folder, self._pinning, self._nodes = plan, folder, pinning, nodes
        leftovers = [Path(plan.socket_dir), folder.page_address, folder.invitation]
        self._shares = shares
        here = ThreadSpawner() if threads else warm.spawner(leftovers, chain.from_iterable(shares.values()))
        self.deadlines = Deadlines(plan, self._starved_s)
        worked_s = None if threads else self.deadlines.worked_s  # which nobody asks of threads
        spawner = here if nodes is None else PlacedSpawner(here, nodes)
        self.supervisor = Supervisor(spawner, worked_s=worked_s)
        sampler = plan.components[SAMPLER]
        first = sampler.count.maximum if sampler.launched else 0
        self._names = (f"{SAMPLER}-{index}" for index in itertools.count(first))
        learners = () if threads else plan.learning.learners
        self._kept = {role: kept_memory.create(role) for role in learners}
        self._missing: list[str] = []
        self.counts: dict[str, int] = {}
        self.ports = OnDemandPorts()

    def scale(self, role: str, count: int) -> None:
        """Start or stop processes of a role until there are ``count``; the highest indices stop first."""
        before = self.counts.get(role, 0)
        leaving = [f"{role}-{index}" for index in range(count, before)]
        self.supervisor.stop(leaving)
        self._missing = [name for name in self._missing if name not in leaving]
        self._missing += [f"{role}-{index}" for index in range(before, count)]
        self.counts[role] = count
        self.fill()

    def lend(self, node: Node, count: int) -> None:
        """Start or stop samplers of another machine until there are ``count``, or as many as the run has room
        for, those that came last first. The numbers of their names come after those of the head's own.
        """
        assert self._nodes is not None
        count = min(count, self.most_of(node))
        self.supervisor.stop(node.wanted[count:])
        del node.wanted[count:]
        for _ in range(count - len(node.wanted)):
            name = self._nodes.leases.lease(self._names, lambda name: bool(self.supervisor.alive([name])))
            node.wanted.append(name)
            self._nodes.place(name, node)
            self.supervisor.start(self._spec(SAMPLER, int(name.rpartition("-")[2])))
            self.deadlines.begin(name)

    def most_of(self, node: Node) -> int:
        """The most samplers that a machine may run now, so that the run has at most ``MOST_PROCESSES``."""
        here = sum(component.count.maximum for component in self._plan.components.values())
        lent = () if self._nodes is None else self._nodes.lent.values()
        elsewhere = sum(len(other.wanted) for other in lent if other is not node)
        return max(0, min(node.most, MOST_PROCESSES - here - elsewhere))

    def fill(self) -> None:
        """Start the missing processes, except where a predecessor of the same name still runs, or the machine
        is missing that is to run one.
        """
        for name in [name for name in self._missing if not self.supervisor.alive([name])]:
            role, _, index = name.rpartition("-")
            if not self._find_place(name, role):
                continue
            self.supervisor.start(self._spec(role, int(index)))
            self._missing.remove(name)
            self.deadlines.begin(name)

    def _find_place(self, name: str, role: str) -> bool:
        """Whether a process has its place, or gets one now."""
        wanted = self._plan.placement.get(role)
        if wanted is None or self._nodes is None or self._nodes.holds(name):
            return True
        if (node := self._nodes.fitting(wanted, role)) is not None:
            self._nodes.leases.take(name)
            self._nodes.place(name, node)
            if role == MEMBER:  # it has samplers of its own
                node.most = 0
                self.lend(node, 0)
        return node is not None

    def postpone(self, seconds: float) -> None:
        """Give all processes the time back in which the launcher stood still, and perhaps they too."""
        self.deadlines.postpone(seconds)
        self.supervisor.postpone(seconds)

    def miss(self, names: Iterable[str]) -> None:
        """Note that processes are gone with their machine; those that are placed go to another one."""
        self._missing += [name for name in names if name.rpartition("-")[0] in self._plan.placement]

    def wanted_place(self, name: str) -> str:
        """The placement of a process."""
        return self._plan.placement[name.rpartition("-")[0]]

    @property
    def placed(self) -> list[str]:
        """The processes that other machines are to run."""
        components = self._plan.components
        roles = [role for role in self._plan.placement if components[role].launched]
        return [f"{role}-{index}" for role in roles for index in range(components[role].count.initial)]

    @property
    def waiting(self) -> list[str]:
        """The processes that wait for a machine."""
        placed = [name for name in self._missing if name.rpartition("-")[0] in self._plan.placement]
        return [name for name in placed if self._nodes is not None and not self._nodes.holds(name)]

    def _spec(self, role: str, index: int) -> ProcessSpec:
        """The specification of one process for the supervisor."""
        component = self._plan.components[role]
        name = f"{role}-{index}"
        environment, descriptors = self.ports.environment(role), self.ports.descriptors(role)
        if role in LEARNERS:
            environment = KEEP_FREED_MEMORY
        if role in self._kept:
            environment = {**environment, kept_memory.VARIABLE: str(self._kept[role])}
            descriptors = (self._kept[role],)
        return ProcessSpec(
            name=name,
            command=(*component.command, str(self._folder.run_file), str(index)),
            environment=environment,
            descriptors=descriptors,
            log_path=self._folder.logs / f"{name}.log",
            nice=component.nice,
            threads=component.threads,
            stop_grace_s=component.stop_grace_s,
            max_restarts=component.max_restarts,
            restart_window_s=component.restart_window_s,
            parent_death_signal=ROLES[role].orphaned,
            cpus=self._shares.get(name) or self._pinning.of(name),
        )

    def place_of(self, name: str) -> str:
        """Where a process stands in its code that is to be killed, in words; empty if it does not say."""
        pid = self._pid_here(name)
        return "" if pid is None else standing.place_of(pid, self._folder.logs / f"{name}.log")

    def _starved_s(self, name: str) -> float:
        pid = self._pid_here(name)
        return 0.0 if pid is None else starved_s(pid)

    def _pid_here(self, name: str) -> int | None:
        """The id of a process of this machine that runs; None for any other."""
        if self._nodes is not None and self._nodes.holds(name):
            return None
        return self.supervisor.pids().get(name)

    def close(self) -> None:
        """Release ports, names and kept memory; all processes have ended."""
        if self._nodes is not None:
            self._nodes.leases.release()
        self.ports.close(self._folder)
        for descriptor in self._kept.values():
            os.close(descriptor)


class OnDemandPorts:
    """Open ports of roles whose process starts with its first visitor, whose connection waits there while the
    process starts or restarts.

    Attributes:
        page_address: URL of the page, with its token; empty where there is none.
    """

    def __init__(self) -> None:
        self._ports: dict[str, socket.socket] = {}
        self.page_address = ""

    def open(self, role: str, port: int, folder: RunFolder, note: Callable[[str], None]) -> None:
        """Open a role's port, 0 for any free one; where that fails, note it, and the run goes on without."""
        try:
            listener = address.open_port(port)
            self.page_address = address.publish(folder, listener)
            self._ports[role] = listener
        except (InputError, OSError) as error:
            note(f"{role}: {error}; the run goes on without it")

    def visited(self, counts: Mapping[str, int]) -> list[str]:
        """Roles without a process whose port has a visitor."""
        return [
            role for role, port in self._ports.items() if not counts.get(role) and address.is_wanted(port)
        ]

    def descriptors(self, role: str) -> tuple[int, ...]:
        """File descriptors that a process of this role inherits."""
        port = self._ports.get(role)
        return () if port is None else (port.fileno(),)

    def environment(self, role: str) -> dict[str, str]:
        """The variable by which a process of this role finds its port."""
        port = self._ports.get(role)
        return {} if port is None else {address.LISTENER_VARIABLE: str(port.fileno())}

    def shut(self, role: str) -> None:
        if (port := self._ports.pop(role, None)) is not None:
            port.close()

    def close(self, folder: RunFolder) -> None:
        """Close all ports and remove the page's address from the run's folder."""
        for role in list(self._ports):
            self.shut(role)
        folder.page_address.unlink(missing_ok=True)
