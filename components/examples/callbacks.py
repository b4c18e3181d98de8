"""Ten callbacks to copy from, those of Stable-Baselines3's documentation written for a run of processes.

From Python ``spreeze_zmq.train("Pendulum-v1", callbacks=[StopAtReturn(-200)])``; from the command line, of a
module beside the topology, a class that needs no arguments: ``spreeze-launch T --callback module:Class``.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq import Callback, Policy
from spreeze_zmq.callbacks import Best, Checkpoint, Ended, Episodes, Evaluation, LiveRun, Started, Status


class StopAtReturn(Callback):
    """Ends the run at a return that fresh episodes of the best policy have confirmed, as many as for
    ``stop={"return": ...}``, for which they are played at once; here races play them, by and by.
    """

    def __init__(self, threshold: float, episodes: int = 30) -> None:
        self.threshold, self.episodes = threshold, episodes

    def on_evaluation(self, run: LiveRun, evaluation: Evaluation) -> None:
        whole = evaluation.num_episodes >= self.episodes and not evaluation.timed_out
        confirmed = evaluation.confirmed and evaluation.best and whole
        if confirmed and evaluation.mean_return >= self.threshold:
            run.stop(f"reached {evaluation.mean_return:g}")


class StopWithoutImprovement(Callback):
    """Ends the run when so many evaluations have come since the last best policy."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_started(self, run: LiveRun, started: Started) -> None:
        self.since = 0  # here, as a further run may be given the same object

    def on_best(self, run: LiveRun, best: Best) -> None:
        self.since = 0

    def on_evaluation(self, run: LiveRun, evaluation: Evaluation) -> None:
        self.since += not evaluation.confirmed  # a look at a new policy
        if self.since > self.patience:
            run.stop(f"{self.patience} evaluations without a better policy")


class EverySteps(Callback):
    """Calls a function each time so many env steps have been made."""

    def __init__(self, steps: int, function: Callable[[LiveRun, Status], None]) -> None:
        self.steps, self.function = steps, function

    def on_started(self, run: LiveRun, started: Started) -> None:
        self.done = 0

    def on_status(self, run: LiveRun, status: Status) -> None:
        if status.env_steps // self.steps > self.done:
            self.done = status.env_steps // self.steps
            self.function(run, status)


class KeepCheckpoints(Callback):
    """Keeps a copy of every checkpoint: a run's folder has the newest two."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def on_checkpoint(self, run: LiveRun, checkpoint: Checkpoint) -> None:
        shutil.copytree(checkpoint.path, self.folder / checkpoint.path.name)


class TryBest(Callback):
    """Has each new best policy act: what it does with one observation, here all zeros."""

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def on_best(self, run: LiveRun, best: Best) -> None:
        policy = Policy.load(best.path)
        self.actions.append(policy(np.zeros(policy.observation_shape, np.float32)))


class SaveBest(Callback):
    """Copies each new best policy to a place of its own, with its return in the name."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def on_best(self, run: LiveRun, best: Best) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(best.path, self.folder / f"{best.env_steps}_{best.mean_return:.0f}.safetensors")


class ProgressBar(Callback):
    """Draws one line; ``train(progress=False)`` leaves the terminal to it."""

    def on_started(self, run: LiveRun, started: Started) -> None:
        self.steps = started.stop["env_steps"] or 1

    def on_status(self, run: LiveRun, status: Status) -> None:
        done = min(1.0, status.env_steps / self.steps)
        print(f"\r[{'#' * int(40 * done):40}] {done:4.0%}", end="", file=sys.stderr, flush=True)

    def on_ended(self, run: LiveRun, ended: Ended) -> None:
        print(f"\n{ended.reason}", file=sys.stderr)


class CollectReturns(Callback):
    """Gathers the returns of the training episodes, to be drawn when the run is over."""

    def on_started(self, run: LiveRun, started: Started) -> None:
        self.times: list[float] = []
        self.means: list[float] = []
        self.count = 0

    def on_episodes(self, run: LiveRun, episodes: Episodes) -> None:
        self.times.append(episodes.t_s)
        self.means.append(episodes.mean)
        self.count += episodes.count


class LinearSchedule(Callback):
    """Lets the learning rate fall from ``first`` to 0 in so many env steps, by about a twentieth at a time (a
    schedule in the topology is exact, and in order too).
    """

    def __init__(self, first: float, steps: int) -> None:
        self.first, self.steps = first, steps

    def on_started(self, run: LiveRun, started: Started) -> None:
        self.last = float("inf")

    def on_status(self, run: LiveRun, status: Status) -> None:
        rate = self.first * max(0.0, 1.0 - status.env_steps / self.steps)
        if abs(rate - self.last) > 0.05 * self.first or rate == 0.0 < self.last:
            self.last = rate
            run.set("learning_rate", rate)


class LogExtra(Callback):
    """Writes a value of one's own beside the run's journal, a line each."""

    def on_status(self, run: LiveRun, status: Status) -> None:
        if "critic_loss" in status.gauges and status.mean_return:
            value = status.gauges["critic_loss"] / abs(status.mean_return)
            with (run.folder / "extra.jsonl").open("a") as file:
                file.write(json.dumps({"env_steps": status.env_steps, "loss_per_return": value}) + "\n")
