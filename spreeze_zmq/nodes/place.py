"""A node's own folder of a run: its run.json, keys, modules and logs, beside the sockets of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spreeze_zmq.base.endpoints import Keys, write_keys
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.nodes.building import build
from spreeze_zmq.nodes.bundle import unpack
from spreeze_zmq.plan.parts import ComponentPlan
from spreeze_zmq.plan.plan import KEYS_FILE, Plan
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.plan.topology.component_file import find_component
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire.channels import SocketFolder


class Place:
    """The folder, locked as long as this process lives.

    Attributes:
        plan: the run's, with the paths and endpoints of this machine.
        roles: those that may run here.
        folder: as that of a run.
        sockets: holds the names of this machine's processes.
    """

    def __init__(self, welcome: Mapping[str, Any], plan: Plan, bundle: bytes) -> None:
        """Make the folder from what the head sent.

        Raises:
            InputError: a component is not there, or cannot be built here.
        """
        self.sockets = SocketFolder.create(plan.name)
        root = self.sockets.path
        try:
            unpack(bundle, root / "bundle")
            write_keys(Keys(welcome["public"], welcome["secret"], welcome["server"]), root / KEYS_FILE)
            self.folder = RunFolder(root / "run")
            self.folder.logs.mkdir(parents=True, mode=0o700)
            self.folder.outbox.mkdir()
            self.roles = roles_elsewhere(plan)
            self.plan = _moved(plan, root, self.roles)
            self.folder.run_file.write_text(self.plan.to_json())
        except BaseException:
            self.sockets.remove()
            raise

    def command(self, name: str) -> tuple[str, ...]:
        """The command line of one process."""
        role, _, index = name.rpartition("-")
        return (*self.plan.components[role].command, str(self.folder.run_file), index)


def roles_elsewhere(plan: Plan) -> tuple[str, ...]:
    """The roles of which processes may run on other machines than the head's."""
    return (SAMPLER, *plan.placement)


def _moved(plan: Plan, root: Path, roles: tuple[str, ...]) -> Plan:
    """The plan with this machine's folders, commands and endpoints."""
    topology = root / "bundle" / Path(plan.topology_file).name
    channels = {
        name: replace(
            channel,
            endpoint=channel.remote,
            curve=True,
            remote="",
            socket_buffer_bytes=channel.remote_buffer_bytes,
            keys=str(root / KEYS_FILE),
        )
        for name, channel in plan.channels.items()
    }
    components = {
        role: _component(component, topology.parent) if role in roles else component
        for role, component in plan.components.items()
    }
    return replace(
        plan,
        topology_file=str(topology),
        channels=channels,
        components=components,
        pinning={},
        recording={},
        run_dir=str(root / "run"),
        socket_dir=str(root),
    )


def _component(component: ComponentPlan, beside: Path) -> ComponentPlan:
    """A component as it lies on this machine, built. Raises InputError."""
    if (folder := find_component(component.use, beside)) is None:
        raise InputError(
            f"the component {component.use} is not on this machine: name it by a path beside the topology, "
            "so that it is sent along"
        )
    return replace(component, folder=str(folder), command=build(folder, print).command)
