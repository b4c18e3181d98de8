"""Data-parallel critic-learners: they connect, average their gradients, and notice a lost peer.

Each has a shard of the replay and the same weights. An update is one all-reduce of the flat gradient. A
process that lacks samples delays it; one that is to stop sets a flag in it, and then no process takes a step.
The all-reduce is asynchronous: meanwhile every process serves its sockets.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from spreeze_zmq.component.component import Component
from spreeze_zmq.errors import PeerLost, PeerTimeout, SpreezeError
from spreeze_zmq.learner.presence import Member, Presence
from spreeze_zmq.plan.roles import BROKER, SAMPLER
from spreeze_zmq.run.checkpoint import Checkpoint

log = logging.getLogger("spreeze")
#: Any, because torch's stubs lack much of it.
distributed: Any = torch.distributed

#: Gradients travel over loopback only, like every channel of a run.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
#: Connections are made after all processes have registered: one that does not answer in time has died.
CONNECT_S = 20.0
#: An all-reduce lasts until the slowest process has samples: lateness is watched, not timed out.
PATIENT = timedelta(days=1)
#: Interval of the checks on the others.
WATCH_S = 1.0
#: Longest wait after a failed all-reduce until a dead process is found.
BLAME_S = 5.0
#: Added to the launcher's own timeout of silence, so that the launcher replaces a hanging process first.
SILENCE_S = 5.0
#: Interval at which a process looks for others that have not started yet.
LOOK_S = 0.05
NO_CHECKPOINT = "none"


@dataclass(frozen=True)
class Shared:
    """The outcome of one all-reduce.

    Attributes:
        ended: a process is to stop: no step is taken, and no further update made.
        received: transitions that all processes together have received since the last one.
        own: this process's part of them.
        batch_size: of each process from the next update on, set by the first one.
    """

    ended: bool
    received: int
    own: int
    batch_size: int


class Ranks:
    """This process's membership in the group of critic-learners.

    Args:
        component: this process.
        device: of its gradient.

    Attributes:
        count: number of processes.
        ended: a process was to stop: no further update is made.
        restore_from: the checkpoint that all of them restore, found by the first.
    """

    def __init__(self, component: Component, device: str) -> None:
        plan = component.plan
        self.component = component
        self.device = torch.device(device)
        self.count = plan.components[component.role].count.initial
        self.folder = Path(plan.socket_dir)
        heartbeat_s = float(plan.components[BROKER].options.get("heartbeat_timeout_s", 0.0))
        timeout_s = max(heartbeat_s, plan.components[component.role].start_timeout_s) + SILENCE_S
        own = Member(component.incarnation, os.getpid())
        self.presence = Presence(self.folder, component.role, self.count, component.index, own, timeout_s)
        self.members: list[Member] = []
        self.restore_from: Checkpoint | None = None
        self.ended = False
        self._watch_at_s = 0.0
        self._group: Any = None
        self._work: Any = None
        self._buffer = torch.empty(0)
        self._own = 0

    @property
    def others(self) -> str:
        """Names of the other processes."""
        return ", ".join(name for name in self.presence.names if name != self.component.name)

    @property
    def offered(self) -> bool:
        """Whether an all-reduce is under way."""
        return self._work is not None

    # --- meeting

    def join(self) -> None:
        """Wait until all processes have started, also through restarts of some, and connect.

        Returns unconnected, with ``ended`` set, if this process is stopped meanwhile.
        """
        self.presence.register()
        store = self._meet()
        if store is None:
            self.ended = True
            return
        os.environ.update(LOOPBACK)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        timeout = PATIENT if backend == "nccl" else timedelta(seconds=CONNECT_S)
        try:
            distributed.init_process_group(
                backend, store=store, rank=self.component.index, world_size=self.count, timeout=timeout
            )
        except RuntimeError as error:
            raise self._blamed(error) from error
        self._group = distributed.group.WORLD
        self.restore_from = self._agreed(store)
        log.info("%s trains as one of %d, over %s", self.component.name, self.count, backend)

    def _meet(self) -> Any:
        """The store through which a complete set of members connects; each set has its own store."""
        store, members = None, None
        keys = [f"here-{index}" for index in range(self.count)]
        while self.component.running:
            found = [member for member in self.presence.members() if member is not None]
            if len(found) == self.count and found != members:
                members, store = found, self._store(found)
                store.set(keys[self.component.index], "yes")
            if members is not None and store is not None and store.check(keys):
                self.members = members
                return store
            self.presence.touch()
            self._pause(f"{self.others} to start")
        return None

    def _store(self, members: list[Member]) -> Any:
        name = hashlib.sha256(repr(members).encode()).hexdigest()[:16]
        return distributed.FileStore(str(self.folder / f"{self.component.role}-{name}.store"), self.count)

    def _agreed(self, store: Any) -> Checkpoint | None:
        """The checkpoint that the first process finds: the others could already find a later one."""
        key = "restore-from"
        if self.component.index == 0:
            found = self.component.restore_point()
            store.set(key, NO_CHECKPOINT if found is None else str(found.path))
            return found
        while self.component.running and not store.check([key]):
            self.watch()
            self._pause(f"{self.presence.names[0]} to name a checkpoint")
        path = store.get(key).decode() if self.component.running else NO_CHECKPOINT
        return None if path == NO_CHECKPOINT else Checkpoint.read(Path(path))

    def _pause(self, waiting_for: str) -> None:
        self.component.poll(timeout_s=LOOK_S, waiting_for=waiting_for)

    # --- updates

    def offer(
        self, gradient: torch.Tensor, received: int, batch_size: int = 0, *, ending: bool = False
    ) -> None:
        """Begin the all-reduce of an update; it completes when all processes have offered.

        Args:
            gradient: flat float32 ``[P]``; copied.
            received: transitions that this process has received since its last offer; exact below 2^24.
            batch_size: of every process after this update, below 2^24; only the first one's counts.
            ending: offer no gradient but the flag that this process is to stop.
        """
        size = gradient.numel()
        if self._buffer.numel() == 0:
            self._buffer = torch.zeros(size + 3, device=self.device)
        if ending:
            self._buffer[:size].zero_()
        else:
            self._buffer[:size].copy_(gradient)
        next_size = batch_size if self.component.index == 0 else 0
        self._buffer[size:].copy_(torch.tensor([float(received), float(ending), float(next_size)]))
        self._own = received
        options = distributed.AllreduceOptions()
        options.reduceOp, options.timeout = distributed.ReduceOp.SUM, PATIENT
        try:
            self._work = self._group.allreduce([self._buffer], options)
        except RuntimeError as error:
            self._fail(error)

    def result(self, gradient: torch.Tensor, wait_s: float) -> Shared | None:
        """The outcome of the all-reduce; None while an offer is missing.

        Args:
            gradient: receives the mean gradient ``[P]`` of all processes.
            wait_s: longest wait.

        Raises:
            PeerLost: another process is gone.
            PeerTimeout: another process hangs.
        """
        try:
            if not self._is_done(wait_s):
                self.watch()
                return None
        except RuntimeError as error:
            self._fail(error)
            return Shared(ended=True, received=0, own=0, batch_size=0)
        size = gradient.numel()
        received, ending, batch_size = self._buffer[size:].tolist()
        self._work = None
        self.ended = ending > 0
        if not self.ended:
            torch.mul(self._buffer[:size], 1.0 / self.count, out=gradient)
        return Shared(self.ended, round(received), self._own, round(batch_size))

    def _is_done(self, wait_s: float) -> bool:
        """Whether the all-reduce is over. Raises RuntimeError if it has failed."""
        if self.device.type == "cuda":  # NCCL aborts the group when a wait with a deadline expires
            until_s = time.monotonic() + wait_s
            while not self._work.is_completed() and time.monotonic() < until_s:
                pass
        else:
            with contextlib.suppress(RuntimeError):  # the deadline's; any other is raised again below
                self._work.wait(timedelta(seconds=wait_s))
        if not self._work.is_completed():
            return False
        self._work.wait()
        return True

    # --- lost peers

    @property
    def leaving(self) -> bool:
        """Whether the run ends: processes that leave now are not lost."""
        return SAMPLER in self.component.stopping_roles or not self.component.running

    def watch(self) -> None:
        """Touch this process's file and check the others; at most once a second.

        Raises:
            PeerLost: one is gone or has been restarted.
            PeerTimeout: one hangs.
        """
        now_s = time.monotonic()
        if now_s < self._watch_at_s:
            return
        self._watch_at_s = now_s + WATCH_S
        self.presence.touch()
        if self.leaving:
            return
        if lost := self.presence.lost(self.members):
            raise self._peer_lost(lost)
        name, silent_s = self.presence.silent()
        if name:
            raise PeerTimeout(self.component.name, name, "it gives no sign of life", silent_s)

    def _fail(self, error: RuntimeError) -> None:
        """Handle a failed all-reduce: set ``ended`` if the run ends, else raise with the lost peer."""
        if not self.leaving:
            raise self._blamed(error) from error
        self._work, self.ended = None, True

    def _blamed(self, error: RuntimeError) -> SpreezeError:
        until_s = time.monotonic() + BLAME_S
        while self.members and time.monotonic() < until_s:
            if lost := self.presence.lost(self.members):
                return self._peer_lost(lost)
            self._pause(f"one of {self.others} to be gone")
        return SpreezeError(f"{self.component.name} cannot share gradients with {self.others}: {error}")

    def _peer_lost(self, lost: str) -> PeerLost:
        return PeerLost(f"{self.component.name} leaves to begin anew: {lost}")


def checksum(parameters: torch.Tensor) -> int:
    """CRC-32 of flat parameters; equal on all ranks after the same number of updates."""
    return zlib.crc32(parameters.cpu().numpy().tobytes())
