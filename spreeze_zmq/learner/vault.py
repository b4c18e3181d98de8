"""A learner's part of each checkpoint: written when the broker asks, restored at the start."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch

from spreeze_zmq.component.component import Component
from spreeze_zmq.errors import CheckpointError
from spreeze_zmq.run.checkpoint import Checkpoint, write_part

log = logging.getLogger("spreeze")


class SavedReplay(Protocol):
    """A replay that can be saved."""

    def save(self, folder: Path) -> None:
        """Write everything into a folder."""

    def load(self, folder: Path) -> None:
        """Restore from the files of ``save``."""


class Vault:
    """Writes and restores this learner's part of checkpoints.

    Args:
        component: the learner.
        state: returns what ``torch.save`` writes and ``torch.load(weights_only=True)`` reads.
        replay: saved too if the topology asks for it (``save_replay``).
        settled: whether the learner has done all updates that the run's samples allow. In a run in order, the
            checkpoint at the last sample waits for that, so that every such run is saved at the same update.
    """

    def __init__(
        self,
        component: Component,
        state: Callable[[], dict[str, Any]],
        replay: SavedReplay,
        settled: Callable[[], bool],
    ) -> None:
        self.component = component
        self.state = state
        self.replay = replay if component.plan.run.save_replay else None
        self.state_file = f"{component.role}.pt"
        self.replay_prefix = f"{component.role}-replay-"
        self.settled = settled
        self._asked: Mapping[str, Any] | None = None
        component.on("checkpoint", self._on_request)

    def serve(self) -> None:
        """Write the checkpoint that was requested last, if there is one and it need not wait."""
        if self._asked is not None and (not self._is_last(self._asked) or self.settled()):
            asked, self._asked = self._asked, None
            self._save(asked["folder"])

    def _on_request(self, fields: Mapping[str, Any]) -> None:
        self._asked = fields

    def _is_last(self, asked: Mapping[str, Any]) -> bool:
        plan = self.component.plan
        enough = plan.run.stop.env_steps
        return plan.balance.in_order and enough is not None and asked.get("env_steps", 0) >= enough

    def _save(self, name: str) -> None:
        folder = self.component.folder.checkpoints / name
        files = [write_part(folder, self.state_file, self._write_state)]
        if self.replay is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".replay-", dir=folder) as scratch:
                self.replay.save(Path(scratch))
                for file in Path(scratch).iterdir():
                    part_name = self.replay_prefix + file.name
                    files.append(write_part(folder, part_name, partial(os.replace, file)))
        part = {file.name: file.to_dict() for file in files}
        self.component.report("part", {"folder": name, "part": part})

    def _write_state(self, path: Path) -> None:
        with path.open("wb") as file:  # given a path, torch.save would write its name into the file
            torch.save(self.state(), file)

    def restore(self) -> dict[str, Any] | None:
        """The saved state, after the replay has been restored if it was saved; None for a fresh start.

        Raises:
            CheckpointError: the checkpoint's part cannot be read.
        """
        checkpoint = self.component.restore_point()
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
