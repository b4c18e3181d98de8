"""A learner's part of each checkpoint: written at the broker's request, restored at the start."""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from spreeze_zmq.base.errors import CheckpointError, Diverged
from spreeze_zmq.component import Component
from spreeze_zmq.component.long_work import reporting_while
from spreeze_zmq.learner.going_on import GOES_ON, GoingOn
from spreeze_zmq.replay import ObservationReplay, Replay, RoundStore
from spreeze_zmq.run.checkpoint import Part, SavedCheckpoint, write_part

log = logging.getLogger("spreeze")

#: Times that a learner returns to a checkpoint; its next divergence ends the run. Returns count no more once
#: so much time has passed since the last one, and a later checkpoint been written.
MOST_RETURNS, FORGOTTEN_AFTER_S = 3, 3600.0


class Vault:
    """Writes and restores this learner's part of checkpoints.

    Args:
        component: the learner.
        state: returns the state, of types that ``torch.load(weights_only=True)`` reads.
        replay: saved too if the topology asks for it (``save_replay``); rounds never are, since they do not
            outlive their policy.
        settled: whether the learner has done all updates that the samples allow. In order, a checkpoint at a
            count waits for that, so that every such run is saved at the same update.
        going_on: what that one holds beside the state, and every one of a run in order of its samplers.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        component: Component,
        state: Callable[[], dict[str, Any]],
        replay: Replay | ObservationReplay | RoundStore,
        settled: Callable[[], bool],
        going_on: GoingOn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.component = component
        self.state = state
        self.replay: Replay | ObservationReplay | None = None
        if component.plan.run.save_replay and not isinstance(replay, RoundStore):
            self.replay = replay
        self.state_file = f"{component.role}.pt"
        self.replay_prefix = f"{component.role}-replay-"
        self.settled, self.going_on = settled, going_on
        self.returns, self._returned_s, self._returned_to = 0, clock(), ""
        self._clock = clock
        self._request: Mapping[str, Any] | None = None
        self._waits = False
        component.on("checkpoint", self._on_request)

    def serve(self) -> None:
        """Write the checkpoint that was requested last, if there is a request and it need not wait.

        Raises:
            Diverged: a number in the state is not finite; the request stays, for after the learner's return
                to a checkpoint.
        """
        if self._request is not None and (not self._waits or self.settled()):
            own = self.going_on.state() if self._waits and self.going_on is not None else {}
            state = self.state() if not own else _canonical({**self.state(), **own})
            if place := not_finite(state):
                raise Diverged("checkpoint", f"{place} is not finite; a lower learning_rate may help")
            request, self._request = self._request, None
            self._save(request["folder"], state, exact=bool(own))
            if self.going_on is not None:
                self.going_on.wait_at(None)

    def last_good(self, error: Diverged, updates: int) -> dict[str, Any]:
        """The state of the last checkpoint, to return to after ``error``; reports the return.

        Raises:
            Diverged: ``error`` itself, if there is no checkpoint that can be read, after ``MOST_RETURNS``
                returns, and in a run in order, which must not depend on when a checkpoint was written.
        """
        plan = self.component.plan
        if not plan.algorithm["normalize_observations"] and plan.environment.obs_dtype != "uint8":
            error.args = (f"{error}; so may algorithm.normalize_observations = true",)
        try:
            if plan.balance.in_order or (checkpoint := self.component.restore_point()) is None:
                raise error
            name = checkpoint.path.name
            if name != self._returned_to and self._clock() - self._returned_s >= FORGOTTEN_AFTER_S:
                self.returns = 0
            if self.returns >= MOST_RETURNS:
                raise error
            state = self._read(checkpoint)
        except CheckpointError as lost:
            error.args = (f"{error}; there was no way back: {lost}",)
            raise error from None
        self.returns, self._returned_s, self._returned_to = self.returns + 1, self._clock(), name
        times = f"{self.returns} of {MOST_RETURNS} times"
        summary = f"{error}: after {updates:,} updates back to checkpoint {name} ({times})"
        log.warning("%s", summary)
        self.component.report_failure(summary, "", updates=updates, checkpoint=name)
        return state

    def _on_request(self, fields: Mapping[str, Any]) -> None:
        if not re.fullmatch(r"\w[\w.-]{,199}", fields["folder"], re.ASCII):
            log.warning("no checkpoint: %r is no valid folder name", fields["folder"][:80])
            return
        self._request, at = fields, fields.get("at")
        if self.going_on is not None and self.component.plan.balance.in_order:
            self._waits = self.going_on.wait_at(at) and at is not None

    def _save(self, name: str, state: Mapping[str, Any], *, exact: bool) -> None:
        folder = self.component.folder.checkpoints / name
        others = self.going_on.files() if self.going_on is not None else {}
        files = reporting_while(self.component, partial(self._write, folder, state, others))
        part = {file.name: file.to_dict() for file in files}
        written = [folder / file.name for file in files]
        losses = self.component.folder.losses(self.component.role)
        written += [losses] if losses.exists() else []
        fields: dict[str, Any] = {"folder": name, "part": part}
        if exact and self.going_on is not None:
            fields["counts"] = self.going_on.counts()
        self.component.report("part", fields, files=written)

    def _write(self, folder: Path, state: Mapping[str, Any], others: Mapping[str, bytes]) -> list[Part]:
        """Write the state, the replay and other files; may take minutes. Raises CheckpointError."""
        files = [write_part(folder, self.state_file, partial(_write_state, state))]

        def put(name: str, write: Callable[[Path], object]) -> None:
            files.append(write_part(folder, self.replay_prefix + name, write))

        if self.replay is not None:
            self.replay.save(put)
        for other, content in others.items():
            files.append(write_part(folder, other, partial(_write_bytes, content)))
        return files

    def restore(self) -> dict[str, Any] | None:
        """Restore the replay if it was saved, and return the saved state, with its place only where all
        learners saved theirs: one that went on alone would wait for the others for ever. None for a fresh
        start.

        Raises:
            CheckpointError: this learner's part of the checkpoint cannot be read.
        """
        checkpoint = self.component.restore_point()
        if checkpoint is None:
            return None
        state = self._read(checkpoint)
        if not checkpoint.state.get("exact"):
            state.pop(GOES_ON, None)
        self._restore_replay(checkpoint)
        return state

    def _read(self, checkpoint: SavedCheckpoint) -> dict[str, Any]:
        path: Path = checkpoint.part(self.state_file)
        log.info("going on from %s", path)
        return reporting_while(self.component, partial(_read_state, path))

    def _restore_replay(self, checkpoint: SavedCheckpoint) -> None:
        names = [name for name in checkpoint.parts if name.startswith(self.replay_prefix)]
        if self.replay is None or not names or len(self.replay):
            return
        with TemporaryDirectory(prefix="spreeze-replay-") as scratch:  # a run's disk may have no links
            for name in names:
                link = Path(scratch) / name.removeprefix(self.replay_prefix)
                link.symlink_to(checkpoint.part(name).absolute())
            reporting_while(self.component, partial(self.replay.load, Path(scratch)))
        log.info("the replay is back")


def _write_state(state: Mapping[str, Any], path: Path) -> None:
    with path.open("wb") as file:  # given a path, torch.save would write its name into the file
        torch.save(state, file)


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's own words for what it does not unpickle advise to run it
        odd = type(error).__name__ == "UnpicklingError"
        why = "it is damaged, or holds more than tensors and numbers, which is never run"
        why = why if odd else str(error).strip().split("\n")[0]
        raise CheckpointError(f"{path} cannot be read: {why}; resume from another checkpoint") from error
    return state


def _canonical(value: Any) -> Any:
    """An equal value in which equal texts are one object and no two lists or maps are: what is written of it
    then follows from its contents alone, and not from what has been read from another checkpoint.
    """
    if type(value) is str:
        return sys.intern(value)
    if type(value) is dict:
        return {_canonical(key): _canonical(item) for key, item in value.items()}
    return type(value)(map(_canonical, value)) if type(value) in (list, tuple) else value


def _write_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def not_finite(state: Any, place: str = "state") -> str:
    """The place of the first tensor or number in a state that is not finite; empty if all are finite."""
    if isinstance(state, torch.Tensor):
        return "" if not state.is_floating_point() or bool(torch.isfinite(state).all()) else place
    if isinstance(state, Mapping):
        return next((bad for name, item in state.items() if (bad := not_finite(item, f"{place}.{name}"))), "")
    return place if isinstance(state, float) and not math.isfinite(state) else ""
