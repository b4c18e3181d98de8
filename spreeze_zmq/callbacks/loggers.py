"""Loggers as callbacks: the curves of a run, by the names that TensorBoard's file has, in the user's service.

Each imports its library when the run starts, in the callback's own thread: a server that is dead, or slow,
costs training nothing. Where a run has no file of yours, their environment variables say the rest
(``WANDB_PROJECT``, ``MLFLOW_TRACKING_URI``, ``TRACKIO_DIR``).
"""

from __future__ import annotations

import importlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from spreeze_zmq.broker.points import finite, of_evaluation, of_status, step_of, step_of_evaluation
from spreeze_zmq.callbacks.callback import Callback, LiveRun
from spreeze_zmq.callbacks.events import Ended, Evaluation, Started, Status

#: What MLflow has in no name: it would refuse all points that came with one such.
ODD = re.compile(r"[^/\w.\- ]")


@dataclass
class _Drawn:
    """The newest step that a logger has drawn of a run."""

    folder: Path
    newest: int = 0


class Logger(Callback):
    """A logger of one's own: ``log`` gets the points of each status with new env steps, and evaluation. What
    its service has not taken yet has longer at the end than another callback.
    """

    end_s = 30.0
    __drawn: _Drawn | None = None  # a user's class may have any name that is not mangled

    def log(self, points: Mapping[str, float], env_steps: int) -> None:
        """Draw points by curve at ``env_steps``, as TensorBoard's file has them: those of an evaluation at
        its policy's, which lie behind the newest; without samplers all at updates.
        """
        raise NotImplementedError

    def on_status(self, run: LiveRun, status: Status) -> None:
        drawn = self.__of(run)
        if (step := step_of(vars(status), offline=run.plan.offline)) > drawn.newest:
            drawn.newest = step
            self.__draw(of_status(status.figures, status.gauges), step)

    def on_evaluation(self, run: LiveRun, evaluation: Evaluation) -> None:
        fields = asdict(evaluation)
        step = step_of_evaluation(fields, self.__of(run).newest, offline=run.plan.offline)
        self.__draw(of_evaluation(fields), step)

    def __of(self, run: LiveRun) -> _Drawn:
        """What is drawn of a run: one logger may be given to several."""
        if self.__drawn is None or run.folder != self.__drawn.folder:
            self.__drawn = _Drawn(run.folder)
        return self.__drawn

    def __draw(self, values: Mapping[str, Any], env_steps: int) -> None:
        if points := finite(values):
            self.log(points, env_steps)


class _LikeWandB(Logger):
    """What W&B and trackio have in common: ``init``, ``log`` at steps that never fall, ``finish``.

    Args:
        project: where the run appears; by default spreeze.
        init: further arguments of ``init``.
    """

    def __init__(self, project: str = "spreeze", **init: Any) -> None:
        self._init = {"project": project, **init}
        self._run: Any = None
        self._highest = 0

    def _defaults(self, run: LiveRun) -> dict[str, Any]:
        return {"name": run.folder.name}

    def on_started(self, run: LiveRun, started: Started) -> None:
        """Begin a run there, with the options as its configuration."""
        config = {"env": started.env, "algorithm": started.algorithm, "seed": started.seed, **started.options}
        library = importlib.import_module(self.needs[0])
        self._run = library.init(**{**self._defaults(run), "config": config, **self._init})
        self._highest = 0

    def log(self, points: Mapping[str, float], env_steps: int) -> None:
        self._highest = max(self._highest, env_steps)  # W&B leaves out what comes at an earlier step
        self._run.log(dict(points), step=self._highest)

    def on_ended(self, run: LiveRun, ended: Ended) -> None:
        self._run.finish()


class WandB(_LikeWandB):
    """Weights & Biases: ``pip install 'spreeze_zmq[wandb]'``."""

    needs: ClassVar[tuple[str, ...]] = ("wandb",)
    if_left = "W&B may show the run as crashed and lack its last points: wandb sync {folder}/wandb/run-*"

    def _defaults(self, run: LiveRun) -> dict[str, Any]:
        return {"name": run.folder.name, "dir": str(run.folder)}


class Trackio(_LikeWandB):
    """trackio, W&B's calls with runs on this machine: ``pip install 'spreeze_zmq[trackio]'``."""

    needs: ClassVar[tuple[str, ...]] = ("trackio",)


class MLflow(Logger):
    """MLflow: ``pip install 'spreeze_zmq[mlflow]'``. Of names that an environment or a learner gives, such as
    ``speed (m/s)``, what MLflow takes in none becomes ``_``.

    Args:
        experiment: where the run appears.
        tracking_uri: the server, or a folder; by default ``MLFLOW_TRACKING_URI``.
    """

    needs: ClassVar[tuple[str, ...]] = ("mlflow",)

    def __init__(self, experiment: str = "spreeze", tracking_uri: str | None = None) -> None:
        self._experiment, self._uri = experiment, tracking_uri
        self._mlflow: Any = None

    def on_started(self, run: LiveRun, started: Started) -> None:
        """Begin a run there, with the options as its parameters."""
        self._mlflow = importlib.import_module("mlflow")
        if self._uri is not None:
            self._mlflow.set_tracking_uri(self._uri)
        self._mlflow.set_experiment(self._experiment)
        self._mlflow.start_run(run_name=run.folder.name)
        facts = {"env": started.env, "algorithm": started.algorithm, "seed": started.seed}
        self._mlflow.log_params({**facts, **started.options})

    def log(self, points: Mapping[str, float], env_steps: int) -> None:
        named = {posixpath.normpath(ODD.sub("_", name)): value for name, value in points.items()}
        self._mlflow.log_metrics(named, step=env_steps)

    def on_ended(self, run: LiveRun, ended: Ended) -> None:
        self._mlflow.end_run()
