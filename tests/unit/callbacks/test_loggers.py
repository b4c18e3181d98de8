"""What loggers hand to the libraries of services."""

import posixpath
import re
import sys
from pathlib import Path
from types import SimpleNamespace

from spreeze_zmq.callbacks import Callback, Logger, MLflow, WandB
from spreeze_zmq.callbacks.events import Evaluation, Started, Status

#: As MLflow 3 checks the name of a metric.
VALID = re.compile(r"^[/\w.\- ]*$")


class Service:
    """Takes what MLflow takes, and refuses what it refuses."""

    def __init__(self):
        self.logged = {}

    def log_metrics(self, points, step):
        """All of them or none."""
        for name in points:
            assert VALID.match(name), f"Invalid value {name}"
            assert posixpath.normpath(name) == name, f"Invalid value {name}"
        self.logged |= {name: (value, step) for name, value in points.items()}

    def __getattr__(self, name):
        return lambda *given, **named: None


def test_mlflow_gets_the_numbers_of_an_environment_whatever_they_are_called(monkeypatch):
    """One name that it refuses would end all logging of the run."""
    service = Service()
    monkeypatch.setattr("spreeze_zmq.callbacks.loggers.importlib.import_module", lambda name: service)
    logger, run = MLflow(), SimpleNamespace(folder=Path("runs/a"), plan=SimpleNamespace(offline=False))
    logger.on_started(run, Started(env="E"))
    odd = {"speed (m/s)": 1.0, "a//b/": 2.0, "is_success": 1.0, "höhe": 3.0}
    logger.on_evaluation(run, Evaluation(env_steps=7, mean_return=5.0, info=odd))
    assert service.logged["eval/mean_reward"] == (5.0, 7)
    assert service.logged["eval/success_rate"] == (1.0, 7)
    found = {name: value for name, (value, _) in service.logged.items() if name.startswith("eval/info/")}
    assert found == {"eval/info/speed _m/s_": 1.0, "eval/info/a/b": 2.0, "eval/info/höhe": 3.0}


def test_an_evaluation_is_drawn_where_tensorboards_file_has_it(monkeypatch):
    """At its policy's env steps, the best one at the newest; W&B takes no step that lies behind the last."""
    drawn = {"own": [], "like W&B": []}

    class Own(Logger):
        def log(self, points, env_steps):
            drawn["own"].append(env_steps)

    steps = SimpleNamespace(log=lambda points, step: drawn["like W&B"].append(step))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: steps))
    like, own, offline = WandB(), Own(), SimpleNamespace(offline=False)
    for folder, at in (("runs/a", 900), ("runs/b", 800)):  # a further run begins at its own first step
        run = SimpleNamespace(folder=Path(folder), plan=offline)
        for logger in (own, like):
            logger.on_started(run, Started(env="E"))
            logger.on_status(run, Status(env_steps=at, figures={"env_steps": at}))
            logger.on_evaluation(run, Evaluation(env_steps=700))
            logger.on_evaluation(run, Evaluation(env_steps=700, best=True, confirmed=True))
    assert drawn == {
        "own": [900, 700, 900, 800, 700, 800],
        "like W&B": [900, 900, 900, 800, 800, 800],
    }


def test_a_logger_of_ones_own_may_have_any_names():
    """What the class keeps itself is in nobody's way: everything that it has but its documented names."""

    class Own(Logger):
        def log(self, points, env_steps):
            pass

    run, own = SimpleNamespace(folder=Path("runs/a"), plan=SimpleNamespace(offline=False)), Own()
    own.on_status(run, Status(env_steps=9, figures={"env_steps": 9}))
    own.on_evaluation(run, Evaluation(env_steps=7))
    taken = {*vars(Logger), *vars(own)} - {*vars(Callback), "log"}
    assert not [name for name in taken if not name.startswith("_Logger__")]
