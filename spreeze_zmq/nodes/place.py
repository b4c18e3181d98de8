"""A node's own folder of a run: its run.json, keys, modules and logs, beside the sockets of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spreeze_zmq.base.endpoints import Keys, ipc_endpoint, write_keys
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.nodes.building import build
from spreeze_zmq.nodes.bundle import unpack
from spreeze_zmq.nodes.listening import rollout_bytes
from spreeze_zmq.plan.parts import ChannelPlan, ComponentPlan
from spreeze_zmq.plan.plan import KEYS_FILE, Plan
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.plan.topology.component_file import find_component
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire.channels import SocketFolder

#: Least kernel buffer between a sampler and its machine's funnel.
LEAST_BUFFER = 4096


@dataclass(frozen=True)
class Wire:
    """A channel that the processes of a machine use over one connection.

    Attributes:
        near: as they connect to it, in the machine's folder.
        far: as the machine connects to it.
    """

    near: ChannelPlan
    far: ChannelPlan


class Place:
    """The folder, locked as long as this process lives.

    Attributes:
        plan: the run's, with the paths and endpoints of this machine.
        roles: those that may run here.
        folder: as that of a run.
        wires: the channels that its processes share.
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
            self.wires = wires_of(plan, root, self.roles)
            self.plan = _moved(plan, root, self.roles, self.wires)
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


def _moved(plan: Plan, root: Path, roles: tuple[str, ...], wires: Mapping[str, Wire]) -> Plan:
    """The plan with this machine's folders, commands and endpoints."""
    topology = root / "bundle" / Path(plan.topology_file).name
    components = {
        role: _component(component, topology.parent) if role in roles else component
        for role, component in plan.components.items()
    }
    return replace(
        plan,
        topology_file=str(topology),
        channels={
            name: wires[name].near if name in wires else _far(channel, root)
            for name, channel in plan.channels.items()
        },
        components=components,
        pinning={},
        recording={},
        run_dir=str(root / "run"),
        socket_dir=str(root),
    )


def wires_of(plan: Plan, root: Path, roles: Sequence[str]) -> dict[str, Wire]:
    """The channels that this machine's processes share: those that they use and that others bind.

    In front of a learner that takes nothing then waits what one queue holds, and of each sampler the least
    that ZeroMQ allows.
    """
    used = {name for role in roles for name in plan.components[role].channels}
    wires = {}
    for name in sorted(used):
        channel = plan.channels[name]
        if channel.binds in roles:
            continue
        here = replace(channel, endpoint=ipc_endpoint(root / name), remote="", curve=False, keys="")
        far = _far(channel, root)
        if "rollout" in channel.kinds:
            buffer = min(channel.socket_buffer_bytes, max(LEAST_BUFFER, rollout_bytes(plan)))
            here = replace(here, high_water_mark=1, socket_buffer_bytes=buffer)
            far = replace(far, high_water_mark=max(1, plan.balance.slack_rollouts))
        wires[name] = Wire(here, far)
    return wires


def _far(channel: ChannelPlan, root: Path) -> ChannelPlan:
    """A channel as one connects to it from here."""
    return replace(
        channel,
        endpoint=channel.remote,
        curve=True,
        remote="",
        socket_buffer_bytes=channel.remote_buffer_bytes,
        keys=str(root / KEYS_FILE),
    )


def _component(component: ComponentPlan, beside: Path) -> ComponentPlan:
    """A component as it lies on this machine, built. Raises InputError."""
    if (folder := find_component(component.use, beside)) is None:
        raise InputError(
            f"the component {component.use} is not on this machine: name it by a path beside the topology, "
            "so that it is sent along"
        )
    return replace(component, folder=str(folder), command=build(folder, print).command)
