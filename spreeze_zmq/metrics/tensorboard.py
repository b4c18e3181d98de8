"""TensorBoard curves under the names that Stable-Baselines3 uses, over env steps."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Where a figure of the status is drawn: its path in the status, and the curve.
STATUS_CURVES = (
    (("episodes", "mean_return"), "rollout/ep_rew_mean"),
    (("episodes", "mean_length"), "rollout/ep_len_mean"),
    (("env_steps_per_s",), "time/fps"),
    (("env_steps",), "time/total_timesteps"),
    (("t_s",), "time/time_elapsed"),
    (("critic_updates",), "train/n_updates"),
    (("critic_updates_per_s",), "time/critic_updates_per_s"),
    (("actor_updates_per_s",), "time/actor_updates_per_s"),
    (("trained_transitions_per_s",), "time/trained_transitions_per_s"),
    (("replay_ratio", "measured"), "balance/replay_ratio"),
    (("policy_lag", "p50"), "balance/policy_lag_p50"),
    (("policy_lag", "p99"), "balance/policy_lag_p99"),
)
#: Gauges of the learners that have another name there; every other one is ``train/NAME``.
GAUGE_CURVES = {"temperature": "train/ent_coef", "replay_ratio": "balance/replay_ratio"}
EVALUATION_CURVES = {
    "mean_return": "eval/mean_reward",
    "std_return": "eval/std_reward",
    "mean_length": "eval/mean_ep_length",
}


class TensorBoard:
    """Writes one file of events; the file and tensorboard's modules come with the first point.

    The records are written here, in this thread, and not by tensorboard's EventFileWriter: that one keeps a
    thread and a queue, and imports the whole of TensorFlow where it is installed.

    Args:
        folder: where the events lie; ``tensorboard --logdir`` finds them in it or above it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records: Any = None
        self._drawn_step = -1

    def status(self, status: Mapping[str, Any], gauges: Mapping[str, float]) -> None:
        """The curves of a status and of the learners' gauges; nothing while no step has been taken."""
        if status["env_steps"] <= self._drawn_step or status["env_steps"] == 0:
            return
        self._drawn_step = status["env_steps"]
        values: dict[str, float | None] = {
            GAUGE_CURVES.get(name, f"train/{name}"): value for name, value in gauges.items()
        }
        values.update({curve: _at(status, path) for path, curve in STATUS_CURVES})
        self.write(values, status["env_steps"])

    def evaluation(self, fields: Mapping[str, Any]) -> None:
        """The curves of an evaluation, at the env steps that its policy had been trained on."""
        self.write({curve: fields[name] for name, curve in EVALUATION_CURVES.items()}, fields["env_steps"])

    def write(self, values: Mapping[str, float | None], env_steps: int) -> None:
        """Points of curves, all at ``env_steps``, flushed; what is None or not finite has no point."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if value is not None and math.isfinite(value)
        ]
        if points:
            event = Event(wall_time=time.time(), step=int(env_steps), summary=Summary(value=points))
            records = self._open()
            records.write(event.SerializeToString())
            records.flush()

    def close(self) -> None:
        """Nothing more will be written."""
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


def _at(status: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = status
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
