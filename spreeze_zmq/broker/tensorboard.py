"""Writes TensorBoard curves by the names of ``points``, over env steps; without samplers over updates."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.patience import patient
from spreeze_zmq.broker.points import finite, of_evaluation, of_status, step_of, step_of_evaluation


class TensorBoard:
    """Writes one file of events; the first point opens the file and imports tensorboard.

    tensorboard's own EventFileWriter keeps a thread and a queue, and imports all of TensorFlow if installed.

    Args:
        folder: the folder of the file, for ``tensorboard --logdir``.
        offline: whether the run has no samplers, so that its curves are over updates.

    Attributes:
        age_s: how long ago that was of which points are written now; more than 0 for what a run goes on from.
    """

    def __init__(self, folder: Path, *, offline: bool = False) -> None:
        self._folder, self._offline = folder, offline
        self.age_s = 0.0
        self._records: Any = None
        self._drawn_step = -1

    def status(self, status: Mapping[str, Any], gauges: Mapping[str, float]) -> None:
        """Write the points of a status and the learners' gauges, if there are new env steps."""
        step = step_of(status, offline=self._offline)
        if step <= self._drawn_step or step == 0:
            return
        self._drawn_step = step
        self.write(of_status(status, gauges), step)

    def evaluation(self, fields: Mapping[str, Any]) -> None:
        """Write the points of an evaluation."""
        step = step_of_evaluation(fields, self._drawn_step, offline=self._offline)
        self.write(of_evaluation(fields), step)

    def went_back(self, row: Mapping[str, Any]) -> None:
        """Write the number of updates after which a learner went back to a checkpoint, at its env steps."""
        step = row["updates"] if self._offline else row["env_steps"]
        self.write({f"train/{row['learner']}_went_back_after_updates": row["updates"]}, step)

    def write(self, values: Mapping[str, float | None], env_steps: int) -> None:
        """Write one point per curve at ``env_steps`` and flush, without None and non-finite values."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in finite(values).items()]
        if points:
            then_s = time.time() - self.age_s
            event = Event(wall_time=then_s, step=int(env_steps), summary=Summary(value=points))
            records = self._open()
            records.write(event.SerializeToString())
            patient(records.flush, self._folder)

    def close(self) -> None:
        if self._records is not None:
            self._records.close()

    def _open(self) -> Any:
        if self._records is None:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.summary.writer.record_writer import RecordWriter

            now_s = time.time()
            name = f"events.out.tfevents.{int(now_s)}.{socket.gethostname()}.{os.getpid()}"
            self._records = RecordWriter((self._folder / name).open("wb"))
            self._records.write(Event(wall_time=now_s, file_version="brain.Event:2").SerializeToString())
        return self._records
