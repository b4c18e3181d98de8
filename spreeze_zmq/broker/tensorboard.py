"""Writes TensorBoard curves over env steps, with the names that Stable-Baselines3 uses."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Path of a figure in the status -> its curve.
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
#: Learners' gauges -> their curves; any other gauge is ``train/NAME``.
GAUGE_CURVES = {"temperature": "train/ent_coef", "replay_ratio": "balance/replay_ratio"}
EVALUATION_CURVES = {
    "mean_return": "eval/mean_reward",
    "std_return": "eval/std_reward",
    "mean_length": "eval/mean_ep_length",
}
INFO_CURVES = {"is_success": "eval/success_rate"}


class TensorBoard:
    """Writes one file of events; the first point opens the file and imports tensorboard.

    tensorboard's own EventFileWriter keeps a thread and a queue, and imports all of TensorFlow if installed.

    Args:
        folder: the folder of the file, for ``tensorboard --logdir``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records: Any = None
        self._drawn_step = -1

    def status(self, status: Mapping[str, Any], gauges: Mapping[str, float]) -> None:
        """Write the points of a status and the learners' gauges, if there are new env steps."""
        if status["env_steps"] <= self._drawn_step or status["env_steps"] == 0:
            return
        self._drawn_step = status["env_steps"]
        values: dict[str, float | None] = {
            GAUGE_CURVES.get(name, f"train/{name}"): value for name, value in gauges.items()
        }
        values.update({curve: _at(status, path) for path, curve in STATUS_CURVES})
        self.write(values, status["env_steps"])

    def evaluation(self, fields: Mapping[str, Any]) -> None:
        """Write the points of an evaluation: a look at its policy's env steps, the best one at the newest."""
        if not fields.get("confirmed", False):
            values = {curve: fields[name] for name, curve in EVALUATION_CURVES.items()}
            info = fields.get("info", {})
            values |= {INFO_CURVES.get(name, f"eval/info/{name}"): value for name, value in info.items()}
            self.write(values, fields["env_steps"])
        elif fields["best"]:
            self.write(
                {"eval/best_mean_reward": fields["mean_return"]}, max(self._drawn_step, fields["env_steps"])
            )

    def went_back(self, row: Mapping[str, Any]) -> None:
        """Write the number of updates after which a learner went back to a checkpoint, at its env steps."""
        self.write({f"train/{row['learner']}_went_back_after_updates": row["updates"]}, row["env_steps"])

    def write(self, values: Mapping[str, float | None], env_steps: int) -> None:
        """Write one point per curve at ``env_steps`` and flush, without None and non-finite values."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if points:
            event = Event(wall_time=time.time(), step=int(env_steps), summary=Summary(value=points))
            records = self._open()
            records.write(event.SerializeToString())
            records.flush()

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


def _at(status: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = status
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
