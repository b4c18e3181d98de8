"""The processes of a run: starts and stops them until each role has its wanted number."""

from __future__ import annotations

import os
from pathlib import Path

from spreeze_zmq.base import kept_memory
from spreeze_zmq.launcher.deadlines import Deadlines
from spreeze_zmq.launcher.on_demand import OnDemandPorts
from spreeze_zmq.launcher.pinning import Pinning
from spreeze_zmq.launcher.threads import ThreadSpawner
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import LEARNERS, ROLES
from spreeze_zmq.plan.sizing import KEEP_FREED_MEMORY
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.supervisor import GroupSpawner, ProcessSpec, Supervisor


class Crew:
    """The processes of a run.

    Args:
        plan: with its folders settled.
        folder: the run's folder.
        pinning: the cores of each process.
        threads: run components as threads of this process.

    Attributes:
        supervisor: supervises all processes.
        counts: the wanted number of processes of each role.
        deadlines: of getting ready and of reporting.
        ports: the ports of roles that start with their first visitor.
    """

    def __init__(self, plan: Plan, folder: RunFolder, pinning: Pinning, *, threads: bool) -> None:
        self._plan, self._folder, self._pinning = plan, folder, pinning
        leftovers = [Path(plan.socket_dir), folder.page_address]
        self.supervisor = Supervisor(ThreadSpawner() if threads else GroupSpawner(leftovers))
        learners = () if threads else plan.learning.learners
        self._kept = {role: kept_memory.create(role) for role in learners}
        self._missing: list[str] = []
        self.counts: dict[str, int] = {}
        self.deadlines = Deadlines(plan)
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

    def fill(self) -> None:
        """Start the missing processes, except where a predecessor of the same name still runs."""
        for name in [name for name in self._missing if not self.supervisor.alive([name])]:
            role, _, index = name.rpartition("-")
            self.supervisor.start(self._spec(role, int(index)))
            self._missing.remove(name)
            self.deadlines.begin(name)

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
            cpus=self._pinning.of(name),
        )

    def close(self) -> None:
        """Release ports and kept memory; all processes have ended."""
        self.ports.close(self._folder)
        for descriptor in self._kept.values():
            os.close(descriptor)
