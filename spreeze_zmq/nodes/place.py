"""A node's own folder of a run: its run.json, keys, modules and logs, beside the sockets of its processes."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.endpoints import Keys, ipc_endpoint, write_keys
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.envs.packed import sent
from spreeze_zmq.nodes.building import build
from spreeze_zmq.nodes.bundle import places, unpack
from spreeze_zmq.nodes.packages import engine_of_samplers
from spreeze_zmq.plan import devices
from spreeze_zmq.plan.plan import KEYS_FILE, Plan
from spreeze_zmq.plan.processes import MOST_OF_SOCKET, ChannelPlan, ComponentPlan
from spreeze_zmq.plan.roles import LEARNERS, MEMBER, SAMPLER, publisher_of_policy
from spreeze_zmq.plan.topology import resolve
from spreeze_zmq.plan.topology.component_file import find_component
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.versions import VersionFile
from spreeze_zmq.supervisor import ProcessSpec
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY
from spreeze_zmq.wire.channels import Gate, SocketFolder

#: The signals that a process here may get, and the most threads.
SIGNALS, MOST_THREADS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL), 1024
#: Least kernel buffer between a sampler and its machine's funnel.
LEAST_BUFFER = 4096
#: Of rollouts up to this size a sampler's own queue and buffers hold many: they have a gate.
GATED_BYTES = 32 * 1024


@dataclass(frozen=True)
class Wire:
    """A channel that the processes of a machine use over one connection.

    Attributes:
        near: as they connect to it, in the machine's folder.
        far: as the machine connects to it.
        gated: whether those who send wait for room before they make another message.
    """

    near: ChannelPlan
    far: ChannelPlan
    gated: bool = False

    def make_gate(self) -> None:
        """Make its gate, if it has one, before any of its ends opens."""
        if self.gated and self.near.endpoint is not None:
            Gate.make(self.near.endpoint)


class Place:
    """The folder, locked as long as this process lives.

    Attributes:
        plan: the run's, with the paths and endpoints of this machine.
        roles: those that may run here.
        folder: as that of a run.
        wires: the channels that its processes share.
        sockets: holds the names of this machine's processes.
    """

    def __init__(self, welcome: Mapping[str, Any], plan: Plan, bundle: bytes, free_cores: int = 1) -> None:
        """Make the folder from what the head sent.

        Args:
            welcome: the fields of that message.
            plan: the head's.
            bundle: the user's files.
            free_cores: those for a learner.

        Raises:
            InputError: a component is not there, or cannot be built here.
            OSError: a file cannot be written; it is named.
        """
        self.sockets = SocketFolder.create(plan.name)
        self._kept: dict[str, int] = {}
        root = self.sockets.path
        try:
            unpack(bundle, root / "bundle")
            self._import_from, _ = places(root / "bundle")
            write_keys(Keys(welcome["public"], welcome["secret"], welcome["server"]), root / KEYS_FILE)
            self.folder = RunFolder(root / "run")
            self.folder.logs.mkdir(parents=True, mode=0o700)
            self.folder.outbox.mkdir()
            self.roles = roles_elsewhere(plan)
            self.wires = wires_of(plan, root, self.roles)
            for wire in self.wires.values():
                wire.make_gate()
            self.plan = _fitting(_moved(plan, root, self.roles, self.wires), free_cores)
            self.folder.run_file.write_text(self.plan.to_json())
        except BaseException as error:
            self.sockets.remove()
            if isinstance(error, OSError):
                error.filename = error.filename or str(root)
            raise

    def spec(self, start: Mapping[str, Any]) -> ProcessSpec:
        """What starts one process, as the fields of ``start`` ask.

        Raises:
            InputError: this machine has not got its device.
        """
        name = start["name"]
        role, _, index = name.rpartition("-")
        component = self.plan.components[role]
        _check_device(role, component)
        if start.get("again"):
            self.sockets.note_earlier(name)
        environment = self._python_path()
        descriptors: tuple[int, ...] = ()
        if role == publisher_of_policy(self.plan.learning.learners):
            versions = VersionFile(self.sockets.path)
            versions.raise_to(start.get("policy_version", 0))
            versions.close()  # where it is published elsewhere such a file would stay as it is
        if role in LEARNERS:
            if role not in self._kept:
                self._kept[role] = kept_memory.create(role)
            environment |= {**KEEP_FREED_MEMORY, kept_memory.VARIABLE: str(self._kept[role])}
            descriptors = (self._kept[role],)
        return ProcessSpec(
            name=name,
            command=(*component.command, str(self.folder.run_file), index),
            environment=environment,
            descriptors=descriptors,
            log_path=self.folder.logs / f"{name}.log",
            nice=start["nice"],
            threads=component.threads,
            parent_death_signal=start["orphaned"],
        )

    def _python_path(self) -> dict[str, str]:
        """The variable by which a process finds the user's modules as on the head, where it needs one."""
        if not self._import_from:
            return {}
        own = filter(None, [os.environ.get("PYTHONPATH")])
        return {"PYTHONPATH": os.pathsep.join([*map(str, self._import_from), *own])}

    def close(self) -> None:
        """Remove the folder and all that was kept; no process runs here any more."""
        for descriptor in self._kept.values():
            os.close(descriptor)
        self.sockets.remove()


def roles_elsewhere(plan: Plan) -> tuple[str, ...]:
    """The roles of which processes may run on other machines than the head's."""
    return (SAMPLER, *plan.placement)


def _moved(plan: Plan, root: Path, roles: tuple[str, ...], wires: Mapping[str, Wire]) -> Plan:
    """The plan with this machine's folders, commands and endpoints."""
    topology = places(root / "bundle")[1] / Path(plan.topology_file).name
    used = plan.components.keys() if MEMBER in roles else roles  # a member launches a whole group
    components = {
        role: _component(component, topology.parent) if role in used else component
        for role, component in plan.components.items()
    }
    return replace(
        plan,
        topology_file=str(topology),
        channels={
            name: _own(wires[name].near, channel, root) if name in wires else _far(channel, root)
            for name, channel in plan.channels.items()
        },
        components=components,
        pinning={},
        recording={},
        run_dir=str(root / "run"),
        socket_dir=str(root),
    )


def wires_of(plan: Plan, root: Path, roles: Sequence[str]) -> dict[str, Wire]:
    """The channels that this machine's processes share: those that they use and that the head binds.

    In front of a learner that takes nothing then waits what one queue holds, and of each sampler one or two
    rollouts: large ones in the least queues that ZeroMQ allows, small ones behind a gate.
    """
    used = {name for role in roles for name in plan.components[role].channels}
    wires = {}
    for name in sorted(used):
        channel = plan.channels[name]
        here = replace(channel, endpoint=ipc_endpoint(root / name), remote="", back="", curve=False, keys="")
        far = _far(channel, root)
        gated = "rollout" in channel.kinds and _rollout_bytes(plan) <= GATED_BYTES
        if "rollout" in channel.kinds:
            buffer = min(channel.socket_buffer_bytes, max(LEAST_BUFFER, _rollout_bytes(plan)))
            here = replace(here, high_water_mark=1, socket_buffer_bytes=buffer)
            queued = min(max(1, plan.balance.slack_rollouts), MOST_OF_SOCKET)
            far = replace(far, high_water_mark=queued)
        wires[name] = Wire(here, far, gated)
    return wires


def _own(near: ChannelPlan, channel: ChannelPlan, root: Path) -> ChannelPlan:
    """A channel as this machine's processes have it: who binds it otherwise connects to the head instead."""
    return replace(near, back=channel.back, keys=str(root / KEYS_FILE)) if channel.back else near


def _rollout_bytes(plan: Plan) -> int:
    """About the size of one rollout: observations and actions are nearly all of it."""
    environment, floats = plan.environment, 8 + math.prod(plan.environment.action_shape)
    shape, dtype = sent(environment)
    per_step = math.prod(shape) * np.dtype(dtype).itemsize + 4 * floats
    return int(plan.balance.rollout_transitions * per_step)


def _far(channel: ChannelPlan, root: Path) -> ChannelPlan:
    """A channel as one connects to it from here."""
    return replace(
        channel,
        endpoint=channel.remote,
        curve=True,
        remote="",
        socket_buffer_bytes=0,
        keys=str(root / KEYS_FILE),
    )


def _fitting(plan: Plan, free_cores: int) -> Plan:
    """The plan with the threads and devices of this machine, where the topology leaves them to it, and with
    the engine that steps the environments at the head.
    """
    components, sampler = dict(plan.components), plan.components[SAMPLER]
    if engine := engine_of_samplers(plan):
        components[SAMPLER] = replace(sampler, options={**sampler.options, "backend": engine})
    keys = [key.split(".") for key in plan.left_to_node]
    for role, name in keys:
        if name != "threads":
            device = devices.resolve_device(role, "auto", devices.num_auto_devices())
            options = {**components[role].options, name: device}
            components[role] = replace(components[role], options=options)
    for role in [role for role, name in keys if name == "threads"]:
        device, free = components[role].options.get("device", "cpu"), max(1, free_cores)
        threads = resolve.resolve_threads(role, "auto", free, 0, 1, device)
        threads = min(threads, resolve.MOST_UNMEASURED_THREADS)
        components[role] = replace(components[role], threads=threads)
    return replace(plan, components=components)


def _check_device(role: str, component: ComponentPlan) -> None:
    device = str(component.options.get("device", "cpu"))
    if why := devices.device_problem(device, devices.num_cuda_devices(), devices.torch_has_cuda()):
        raise InputError(f"components.{role}.device: {why}; place it elsewhere, or take another device")


def _component(component: ComponentPlan, beside: Path) -> ComponentPlan:
    """A component as it lies on this machine, built. Raises InputError."""
    if (folder := find_component(component.use, beside)) is None:
        raise InputError(
            f"the component {component.use} is not on this machine: name it by a path beside the topology, "
            "so that it is sent along"
        )
    return replace(component, folder=str(folder), command=build(folder, print).command)


def odd_start(fields: Mapping[str, Any], roles: Collection[str]) -> str:
    """What is wrong with a ``start``, which its kind does not check; empty for nothing.

    Args:
        fields: of the message.
        roles: those that may run here.
    """
    role, _, index = fields["name"].rpartition("-")
    if role not in roles or not re.fullmatch(r"[0-9]{1,6}", index):
        return f"start.name is {fields['name'][:40]!r}, expected one of {', '.join(roles)} and its number"
    for name, most in (("nice", 19), ("threads", MOST_THREADS)):
        if fields[name] > most:
            return f"start.{name} is {fields[name]}, expected at most {most}"
    if fields["orphaned"] not in SIGNALS:
        return f"start.orphaned is {fields['orphaned']}, expected a signal that ends a process"
    return ""
