"""What the two learner processes share: taking rollouts in, publishing on time, saving and restoring their
state.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.account import Receipts
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.channels import Puller
from spreeze_zmq.checkpoint import Checkpoint, write_part
from spreeze_zmq.component import Component
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import CheckpointError, WireError
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import rollout_from

log = logging.getLogger("spreeze")

#: A stopping learner has drained its channel when nothing has come for this long.
QUIET_S = 0.1


def algorithm_of(component: Component) -> tuple[Algorithm, Any]:
    """The run's algorithm and its options as the algorithm's own frozen dataclass."""
    algorithm = algorithms.get(component.plan.run.algorithm)
    values = {name: value for name, value in component.plan.algorithm.items() if name != "name"}
    return algorithm, algorithms.options_from(algorithm.options, values)


def settle_device(component: Component) -> str:
    """The device that the plan gives this learner; torch gets the plan's number of threads."""
    threads = component.plan.components[component.role].threads
    torch.set_num_threads(threads)
    # Moments of weights whose gradient stays 0 fade into denormals, which make Adam eight times slower.
    torch.set_flush_denormal(True)
    device: str = component.options["device"]
    log.info("device %s, %d threads", device, threads)
    return device


class Intake:
    """Takes rollouts off an experience channel, checks them against the environment, keeps the account."""

    def __init__(self, component: Component, environment: EnvironmentSpec) -> None:
        self.component = component
        self.puller: Puller = component.open(f"experience.{component.role}")
        self.environment = environment
        self.receipts = Receipts()
        component.figures["taken"] = self.receipts.to_dict

    def rollouts(self, at_most: int) -> Iterator[Rollout]:
        """The rollouts that wait, ``at_most`` so many; a malformed one is counted, logged and left out."""
        for _ in range(at_most):
            message = self.puller.pull()
            if message is None:
                return
            try:
                rollout = rollout_from(message)
            except WireError as error:
                self.puller.refuse(error)
                continue
            misfit = self._misfit(rollout)
            self.receipts.take(rollout, refused=bool(misfit))
            if misfit:
                self.puller.refuse(WireError("misfit", f"rollout of {rollout.sampler}: {misfit}"))
                continue
            yield rollout

    def drain(self) -> Iterator[Rollout]:
        """Everything that is still under way from samplers that have stopped."""
        while self.component.poll([self.puller], timeout_s=QUIET_S, draining=True):
            yield from self.rollouts(at_most=100)

    def _misfit(self, rollout: Rollout) -> str:
        """Why a rollout cannot be of this run's environment; empty where it can."""
        expected = {"obs": self.environment.obs_shape, "final_obs": self.environment.obs_shape}
        expected["action"] = self.environment.action_shape
        lead = {"obs": 2, "final_obs": 1, "action": 2}
        for name, shape in expected.items():
            array = getattr(rollout, name)
            if array is not None and array.shape[lead[name] :] != tuple(shape):
                return f"{name} is {array.shape[lead[name] :]} for each step, expected {tuple(shape)}"
        return ""


class Cadence:
    """Says when the next publication is due."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.due_s = 0.0

    def due(self) -> bool:
        """True at most once in an interval."""
        now_s = time.monotonic()
        if now_s < self.due_s:
            return False
        self.due_s = now_s + self.interval_s
        return True


class SavedReplay(Protocol):
    """What a vault needs of a replay."""

    def save(self, folder: Path) -> None:
        """Write everything into a folder."""

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote."""


class Vault:
    """Writes this learner's part of each checkpoint that the broker asks for, and reads it back.

    Args:
        component: the learner.
        state: gives what torch.save can write and a loader that unpickles nothing can read.
        replay: saved with it where the topology asks (``save_replay``).
    """

    def __init__(
        self, component: Component, state: Callable[[], dict[str, Any]], replay: SavedReplay
    ) -> None:
        self.component = component
        self.state = state
        self.replay = replay if component.plan.run.save_replay else None
        self.state_file = f"{component.role}.pt"
        self.replay_prefix = f"{component.role}-replay-"
        component.on("checkpoint", self._save)

    def _save(self, fields: Mapping[str, Any]) -> None:
        folder = self.component.folder.checkpoints / fields["folder"]
        files = [write_part(folder, self.state_file, lambda path: torch.save(self.state(), path))]
        if self.replay is not None:
            with TemporaryDirectory(prefix=".replay-", dir=folder) as scratch:
                self.replay.save(Path(scratch))
                for file in Path(scratch).iterdir():
                    name = self.replay_prefix + file.name
                    files.append(write_part(folder, name, partial(os.replace, file)))
        part = {file.name: file.to_dict() for file in files}
        self.component.report("part", {"folder": fields["folder"], "part": part})

    def restore(self) -> dict[str, Any] | None:
        """The state to go on from, the replay filled where it was saved; None for a fresh start.

        Raises:
            CheckpointError: the checkpoint's part cannot be read as one of ours.
        """
        checkpoint: Checkpoint | None = self.component.restore_point()
        if checkpoint is None:
            return None
        path: Path = checkpoint.part(self.state_file)
        log.info("going on from %s", path)
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}; resume from another checkpoint"
            ) from error
        self._restore_replay(checkpoint)
        return state

    def _restore_replay(self, checkpoint: Checkpoint) -> None:
        names = [name for name in checkpoint.parts if name.startswith(self.replay_prefix)]
        if self.replay is None or not names:
            return
        with TemporaryDirectory(prefix="replay-") as scratch:
            for name in names:
                (Path(scratch) / name.removeprefix(self.replay_prefix)).symlink_to(checkpoint.part(name))
            self.replay.load(Path(scratch))
        log.info("the replay is back")
