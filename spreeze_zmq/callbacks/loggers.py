"""Loggers as callbacks: the curves of a run, by the names that TensorBoard's file has, in the user's service.

Each imports its library when the run starts, in the callback's own thread: a server that is dead, or slow,
costs training nothing. Where a run has no file of yours, their environment variables say the rest
(``WANDB_PROJECT``, ``MLFLOW_TRACKING_URI``, ``TRACKIO_DIR``).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import posixpath
import re
import threading
import time
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
        init: further arguments of ``init``; a mapping ``config`` is joined to the run's options, and comes
            before them.
    """

    #: Held while a point is drawn in a run of the script's own, which other trainings may draw in, too.
    _drawing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, project: str | None = None, **init: Any) -> None:
        self._init = init if project is None else {"project": project, **init}
        self._run: Any = None
        self._is_own = True
        self._first = self._highest = 0

    def _defaults(self, run: LiveRun) -> dict[str, Any]:
        return {"project": "spreeze", "name": run.folder.name}

    def _active(self, library: Any) -> Any:
        """The run that the script has begun and that all threads of this process are in; None for none."""

    def on_started(self, run: LiveRun, started: Started) -> None:
        """Begin a run there, with the options as its configuration; or go on with the script's own."""
        facts = {"env": started.env, "algorithm": started.algorithm, "seed": started.seed, **started.options}
        given = self._init.get("config") or {}
        library = importlib.import_module(self.needs[0])
        active = self._active(library)
        self._is_own, self._first = active is None, 0
        if self._is_own:
            config = {**facts, **given} if isinstance(given, Mapping) else given
            self._run = library.init(**{**self._defaults(run), **self._init, "config": config})
        else:
            self._run, self._first = active, active.step
            for config in (facts, given):
                active.config.update(config, allow_val_change=True)
            given = {name: value for name, value in self._init.items() if name != "config"}
            if without := ", ".join(n for n, value in given.items() if getattr(active, n, None) != value):
                said = "%s: the run that this script has begun stays as it is, without %s"
                logging.getLogger("spreeze").warning(said, type(self).__name__, without)
        self._highest = self._first if self._is_own else self._first - 1  # what is drawn there is another's

    def log(self, points: Mapping[str, float], env_steps: int) -> None:
        with contextlib.nullcontext() if self._is_own else self._drawing:
            step = max(self._highest, self._first + env_steps)  # W&B leaves out what comes at an earlier one
            if not self._is_own and (newest := self._run.step) != self._highest:
                step = max(step, newest + 1)  # others have drawn at that one, perhaps these curves
            self._run.log(dict(points), step=step)
            self._highest = step

    def on_ended(self, run: LiveRun, ended: Ended) -> None:
        if self._is_own:
            self._finish(failed=ended.failed)

    def _finish(self, *, failed: bool) -> None:
        """End the run there, as one that has failed where the service knows such."""
        self._run.finish()


class WandB(_LikeWandB):
    """Weights & Biases: ``pip install 'spreeze_zmq[wandb]'``. In a run that the script itself has begun, such
    as one of a sweep, it draws behind what that has logged, and leaves its end to the script. A run that it
    begins is not ``wandb.run``: each training of a script has its own.
    """

    needs: ClassVar[tuple[str, ...]] = ("wandb",)
    oldest: ClassVar[Mapping[str, str]] = {"wandb": "0.19.10"}  # the first that makes runs side by side
    if_left = "W&B may show the run as crashed and lack its last points: wandb sync {folder}/wandb/run-*"

    def _defaults(self, run: LiveRun) -> dict[str, Any]:
        own = {"dir": str(run.folder), "reinit": "create_new"}  # others would be given back, or ended
        if project := os.environ.get("WANDB_PROJECT"):
            own["project"] = project
        return {**super()._defaults(run), **own}

    def _active(self, library: Any) -> Any:
        return library.run

    def _finish(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class Trackio(_LikeWandB):
    """trackio, W&B's calls with runs on this machine: ``pip install 'spreeze_zmq[trackio]'``."""

    needs: ClassVar[tuple[str, ...]] = ("trackio",)


class MLflow(Logger):
    """MLflow: ``pip install 'spreeze_zmq[mlflow]'``. What the script itself has set there stays, its active
    run too. Of names that an environment or a learner gives, such as ``speed (m/s)``, what MLflow takes in
    none becomes ``_``.

    Args:
        experiment: where the run appears.
        tracking_uri: the server, or a folder; by default that of the script's ``mlflow.set_tracking_uri``, or
            ``MLFLOW_TRACKING_URI``.
    """

    needs: ClassVar[tuple[str, ...]] = ("mlflow",)
    if_left = "MLflow may show the run as running and lack its last points"

    def __init__(self, experiment: str = "spreeze", tracking_uri: str | None = None) -> None:
        self._experiment, self._uri = experiment, tracking_uri
        self._client: Any = None
        self._run_id = ""

    def on_started(self, run: LiveRun, started: Started) -> None:
        """Begin a run there, with the options as its parameters."""
        named = importlib.import_module("mlflow.tracking.context.registry")  # by whom, of which script
        tags = named.resolve_tags({"mlflow.runName": run.folder.name})
        self._client = importlib.import_module("mlflow").MlflowClient(self._uri)
        made = self._client.create_run(self._experiment_id(), tags=tags, run_name=run.folder.name)
        self._run_id = made.info.run_id
        facts = {"env": started.env, "algorithm": started.algorithm, "seed": started.seed, **started.options}
        kind = importlib.import_module("mlflow.entities").Param
        params = [kind(name, str(value)) for name, value in facts.items()]
        self._client.log_batch(self._run_id, params=params)

    def _experiment_id(self) -> str:
        """That of the experiment of this name, which is created where there is none."""
        if (found := self._client.get_experiment_by_name(self._experiment)) is None:
            try:
                return str(self._client.create_experiment(self._experiment))
            except Exception:  # another run has, just now
                if (found := self._client.get_experiment_by_name(self._experiment)) is None:
                    raise
        return str(found.experiment_id)

    def log(self, points: Mapping[str, float], env_steps: int) -> None:
        named = {posixpath.normpath(ODD.sub("_", name)): value for name, value in points.items()}
        kind, now_ms = importlib.import_module("mlflow.entities").Metric, int(time.time() * 1000)
        metrics = [kind(name, value, now_ms, env_steps) for name, value in named.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def on_ended(self, run: LiveRun, ended: Ended) -> None:
        self._client.set_terminated(self._run_id, status="FAILED" if ended.failed else "FINISHED")
