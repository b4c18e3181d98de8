"""What loggers hand to the libraries of services."""

import posixpath
import re
import sys
from pathlib import Path
from types import SimpleNamespace

from spreeze_zmq.callbacks import Callback, Logger, MLflow, WandB
from spreeze_zmq.callbacks.events import Ended, Evaluation, Started, Status

#: As MLflow 3 checks the name of a metric.
VALID = re.compile(r"^[/\w.\- ]*$")


class MLflowServer:
    """Takes what MLflow takes, and refuses what it refuses; the module has what a client needs, and else says
    what was called that is the whole process's.
    """

    Metric = staticmethod(lambda name, value, timestamp, step: (name, value, step))
    Param = staticmethod(lambda name, value: (name, value))
    resolve_tags = staticmethod(dict)

    def __init__(self):
        self.logged, self.changed, self.ended = {}, [], []
        self.MlflowClient = self.client

    def client(self, uri):
        """Knows no experiment."""
        self.uri, made = uri, SimpleNamespace(info=SimpleNamespace(run_id="of train"))
        return SimpleNamespace(
            get_experiment_by_name=lambda name: None,
            create_experiment=lambda name: "7",
            create_run=lambda experiment_id, tags, run_name: made,
            log_batch=self.log_batch,
            set_terminated=self.ended.append,
        )

    def log_batch(self, run_id, metrics=(), params=()):
        """All of them or none."""
        assert run_id == "of train"
        for name, _, _ in metrics:
            assert VALID.match(name), f"Invalid value {name}"
            assert posixpath.normpath(name) == name, f"Invalid value {name}"
        self.logged |= {name: (value, step) for name, value, step in metrics}

    def __getattr__(self, name):
        return lambda *given, **named: self.changed.append(name)


def test_mlflow_gets_the_numbers_of_an_environment_whatever_they_are_called(monkeypatch):
    """One name that it refuses would end all logging of the run."""
    service = MLflowServer()
    monkeypatch.setattr("spreeze_zmq.callbacks.loggers.importlib.import_module", lambda name: service)
    logger = MLflow(tracking_uri="sqlite:///here.db")
    run = SimpleNamespace(folder=Path("runs/a"), plan=SimpleNamespace(offline=False))
    logger.on_started(run, Started(env="E"))
    odd = {"speed (m/s)": 1.0, "a//b/": 2.0, "is_success": 1.0, "höhe": 3.0}
    logger.on_evaluation(run, Evaluation(env_steps=7, mean_return=5.0, info=odd))
    assert service.logged["eval/mean_reward"] == (5.0, 7)
    assert service.logged["eval/success_rate"] == (1.0, 7)
    found = {name: value for name, (value, _) in service.logged.items() if name.startswith("eval/info/")}
    assert found == {"eval/info/speed _m/s_": 1.0, "eval/info/a/b": 2.0, "eval/info/höhe": 3.0}
    logger.on_ended(run, Ended())
    assert (service.ended, service.uri) == (["of train"], "sqlite:///here.db")
    assert service.changed == []  # the script may have an experiment, a server and a run of its own


def test_an_evaluation_is_drawn_where_tensorboards_file_has_it(monkeypatch):
    """At its policy's env steps, the best one at the newest; W&B takes no step that lies behind the last."""
    drawn = {"own": [], "like W&B": []}

    class Own(Logger):
        def log(self, points, env_steps):
            drawn["own"].append(env_steps)

    steps = SimpleNamespace(log=lambda points, step: drawn["like W&B"].append(step))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: steps, run=None))
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


class WandBRun:
    """One of W&B's: its steps never fall, and it takes nothing once it is finished."""

    def __init__(self, library):
        self.library, self.points, self.step, self.is_finished = library, [], 0, False
        self.options = {"learning_rate": 0.5}
        self.config = SimpleNamespace(update=lambda more, allow_val_change: self.options.update(more))

    def log(self, points, step=None):
        """At the next step, or at a later one."""
        assert not self.is_finished
        assert step is None or step >= self.step
        self.step = self.step + 1 if step is None else step
        self.points.append((points, self.step))

    def finish(self):
        """The process is in it no more."""
        self.is_finished = True
        if self.library.run is self:
            self.library.run = None


class WandBLibrary:
    """``wandb`` outside notebooks: ``init`` gives the run that the process is in, if it is in one."""

    run = None

    def init(self, reinit="default", **options):
        """A run."""
        if reinit == "create_new":
            return WandBRun(self)
        self.run = self.run or WandBRun(self)
        return self.run


def told(logger, name, *steps):
    """A run that a logger hears of, up to its end."""
    run = SimpleNamespace(folder=Path(name), plan=SimpleNamespace(offline=False))
    logger.on_started(run, Started(env="E", options={"learning_rate": 0.1}))
    for step in steps:
        logger.on_status(run, Status(env_steps=step, figures={"env_steps": step}))
        yield
    logger.on_ended(run, Ended())


def test_a_run_that_the_script_has_begun_at_wandb_stays_the_scripts(monkeypatch):
    """One of a sweep, for instance: each training is drawn behind what was logged, and the script goes on."""
    library = WandBLibrary()
    monkeypatch.setitem(sys.modules, "wandb", library)
    own = library.init()
    own.log({"own": 1.0})
    for name in ("runs/a", "runs/b"):
        list(told(WandB(), name, 100, 200))
    own.log({"own": 2.0})
    assert [step for _, step in own.points] == [1, 101, 201, 301, 401, 402]
    assert own.options["learning_rate"] == 0.1
    assert (library.run, own.is_finished) == (own, False)


def test_two_trainings_of_a_script_have_a_run_each_at_wandb(monkeypatch):
    """The end of one does not end the other."""
    library = WandBLibrary()
    monkeypatch.setitem(sys.modules, "wandb", library)
    first, second = WandB(), WandB()
    beside = told(second, "runs/b", 50, 60)
    for _ in told(first, "runs/a", 100):
        next(beside)
    assert len(list(beside)) == 1
    assert library.run is None


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
