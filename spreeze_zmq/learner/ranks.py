"""Several critic-learners that train as one: they meet, average their gradients, and notice who is lost.

Each has a shard of the replay and the same weights. An update is one all-reduce of the flat gradient, which
is also the vote on it: whoever lacks samples has no gradient to give yet, whoever is to stop gives a word
instead, and nobody takes a step that the others do not take. Nothing waits in it: the all-reduce is under way
while each goes on serving its sockets.
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
from spreeze_zmq.learner.roll import Life, Roll
from spreeze_zmq.plan.roles import BROKER, SAMPLER
from spreeze_zmq.run.checkpoint import Checkpoint

log = logging.getLogger("spreeze")
#: Much of it is missing in its stubs.
distributed: Any = torch.distributed

#: Gradients travel over the loopback alone, like everything else of a run.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
#: All have met when the connections are made: whoever does not answer in this time has died meanwhile.
CONNECT_S = 20.0
#: An all-reduce lasts as long as the slowest waits for samples. Who is late is watched over, not timed out.
PATIENT = timedelta(days=1)
#: How often the others are looked at.
WATCH_S = 1.0
#: After a failed all-reduce, how long it may take until it shows who has died.
BLAME_S = 5.0
#: How much longer than for the launcher, which replaces it first, a peer may be silent for the others.
SILENCE_S = 5.0
#: How often a process that has come early looks for the others.
LOOK_S = 0.05
NO_CHECKPOINT = "none"


@dataclass(frozen=True)
class Shared:
    """What became of one all-reduce.

    Attributes:
        ended: somebody is to stop, so there is no update, and none after it.
        received: transitions that all together have received since the last one.
        own: those of them that this process has.
        batch_size: of each one's batches from the next update on, as the first has said.
    """

    ended: bool
    received: int
    own: int
    batch_size: int


class Ranks:
    """This process among the critic-learners of its run.

    Args:
        component: this process.
        device: where its gradient is.

    Attributes:
        count: how many there are.
        ended: somebody was to stop: there is no update any more.
        restore_from: the checkpoint that all of them go on from, as the first has found it.
    """

    def __init__(self, component: Component, device: str) -> None:
        plan = component.plan
        self.component = component
        self.device = torch.device(device)
        self.count = plan.components[component.role].count.initial
        self.folder = Path(plan.socket_dir)
        heartbeat_s = float(plan.components[BROKER].options.get("heartbeat_timeout_s", 0.0))
        silent_s = max(heartbeat_s, plan.components[component.role].start_timeout_s) + SILENCE_S
        life = Life(component.incarnation, os.getpid())
        self.roll = Roll(self.folder, component.role, self.count, component.index, life, silent_s)
        self.members: list[Life] = []
        self.restore_from: Checkpoint | None = None
        self.ended = False
        self._watch_at_s = 0.0
        self._group: Any = None
        self._work: Any = None
        self._buffer = torch.empty(0)
        self._own = 0

    @property
    def others(self) -> str:
        """The names of the others."""
        return ", ".join(name for name in self.roll.names if name != self.component.name)

    @property
    def offered(self) -> bool:
        """Whether an all-reduce is under way."""
        return self._work is not None

    # --- meeting

    def join(self) -> None:
        """Wait until all are here, however often one of them begins anew, and connect.

        Told to stop meanwhile, it returns without them.
        """
        self.roll.enter()
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
        """The store of a meeting of lives that are all here; each set of lives has a meeting of its own."""
        store, members = None, None
        keys = [f"here-{index}" for index in range(self.count)]
        while self.component.running:
            lives = self.roll.lives()
            found = [life for life in lives if life is not None]
            if len(found) == self.count and found != members:
                members, store = found, self._store(found)
                store.set(keys[self.component.index], "yes")
            if members is not None and store is not None and store.check(keys):
                self.members = members
                return store
            self.roll.sign()
            self._pause(f"{self.others} to start")
        return None

    def _store(self, members: list[Life]) -> Any:
        name = hashlib.sha256(repr(members).encode()).hexdigest()[:16]
        return distributed.FileStore(str(self.folder / f"{self.component.role}-{name}.store"), self.count)

    def _agreed(self, store: Any) -> Checkpoint | None:
        """One checkpoint for all: another may become the last one between two looks."""
        key = "restore-from"
        if self.component.index == 0:
            found = self.component.restore_point()
            store.set(key, NO_CHECKPOINT if found is None else str(found.path))
            return found
        while self.component.running and not store.check([key]):
            self.watch()
            self._pause(f"{self.roll.names[0]} to name a checkpoint")
        path = store.get(key).decode() if self.component.running else NO_CHECKPOINT
        return None if path == NO_CHECKPOINT else Checkpoint.read(Path(path))

    def _pause(self, waiting_for: str) -> None:
        self.component.poll(timeout_s=LOOK_S, waiting_for=waiting_for)

    # --- updates

    def offer(
        self, gradient: torch.Tensor, received: int, batch_size: int = 0, *, ending: bool = False
    ) -> None:
        """Begin an update that takes place if all the others offer one too.

        Args:
            gradient: flat float32 ``[P]``; copied.
            received: transitions that this process has received since it last said so; exact below 2^24.
            batch_size: of everybody's batches after this update, below 2^24; the first one's word counts.
            ending: offer none, and say that this process is to stop.
        """
        size = gradient.numel()
        if self._buffer.numel() == 0:
            self._buffer = torch.zeros(size + 3, device=self.device)
        if ending:
            self._buffer[:size].zero_()
        else:
            self._buffer[:size].copy_(gradient)
        said = batch_size if self.component.index == 0 else 0
        self._buffer[size:].copy_(torch.tensor([float(received), float(ending), float(said)]))
        self._own = received
        options = distributed.AllreduceOptions()
        options.reduceOp, options.timeout = distributed.ReduceOp.SUM, PATIENT
        try:
            self._work = self._group.allreduce([self._buffer], options)
        except RuntimeError as error:
            self._fail(error)

    def result(self, gradient: torch.Tensor, wait_s: float) -> Shared | None:
        """What became of the offer, ``gradient`` ``[P]`` holding the mean of all; None while one is missing.

        Args:
            gradient: where to put the mean.
            wait_s: longest wait.

        Raises:
            PeerLost: another one is gone.
            PeerTimeout: another one hangs.
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
        """Whether the all-reduce is over. Raises RuntimeError where it has failed."""
        if self.device.type == "cuda":  # whoever waits for NCCL with a deadline gives the group up after it
            until_s = time.monotonic() + wait_s
            while not self._work.is_completed() and time.monotonic() < until_s:
                pass
        else:
            with contextlib.suppress(RuntimeError):  # that of the deadline; another one comes again below
                self._work.wait(timedelta(seconds=wait_s))
        if not self._work.is_completed():
            return False
        self._work.wait()
        return True

    # --- who is lost

    @property
    def leaving(self) -> bool:
        """The run ends: whoever leaves now is no loss."""
        return SAMPLER in self.component.stopping_roles or not self.component.running

    def watch(self) -> None:
        """Sign, and look whether the others are there; about once a second.

        Raises:
            PeerLost: one is gone, or has begun anew.
            PeerTimeout: one hangs.
        """
        now_s = time.monotonic()
        if now_s < self._watch_at_s:
            return
        self._watch_at_s = now_s + WATCH_S
        self.roll.sign()
        if self.leaving:
            return
        if lost := self.roll.lost(self.members):
            raise PeerLost(f"{self.component.name} leaves to begin anew: {lost}")
        name, silent_s = self.roll.silent()
        if name:
            raise PeerTimeout(self.component.name, name, "it does not sign any more", silent_s)

    def _fail(self, error: RuntimeError) -> None:
        """An all-reduce has failed: the end, where the run ends; else whoever is lost is named."""
        if not self.leaving:
            raise self._blamed(error) from error
        self._work, self.ended = None, True

    def _blamed(self, error: RuntimeError) -> SpreezeError:
        until_s = time.monotonic() + BLAME_S
        while self.members and time.monotonic() < until_s:
            if lost := self.roll.lost(self.members):
                return PeerLost(f"{self.component.name} leaves to begin anew: {lost}")
            self._pause(f"whoever of {self.others} has failed to be gone")
        return SpreezeError(f"{self.component.name} cannot share gradients with {self.others}: {error}")


def checksum(parameters: torch.Tensor) -> int:
    """CRC-32 of flat parameters: the same on all ranks after the same number of updates."""
    return zlib.crc32(parameters.cpu().numpy().tobytes())
