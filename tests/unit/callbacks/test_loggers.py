"""What loggers hand to the libraries of services."""

import posixpath
import re
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.callbacks import Callback, Logger, MLflow, WandB
from spreeze_zmq.callbacks.events import Ended, Evaluation, Started, Status
from spreeze_zmq.callbacks.named import checked

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
            set_terminated=lambda run_id, status: self.ended.append((run_id, status)),
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
    logger.on_ended(run, Ended(failed=True))
    assert service.ended == [("of train", "FINISHED"), ("of train", "FAILED")]
    assert service.uri == "sqlite:///here.db"
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

    def __init__(self, library, config=None, **init):
        self.library, self.points, self.step, self.is_finished = library, [], 0, False
        self.exit_code = None
        self.init, self.options = init, dict(config or {"learning_rate": 0.5})
        self.config = SimpleNamespace(update=lambda more, allow_val_change: self.options.update(more))

    def log(self, points, step=None):
        """At the next step, or at a later one."""
        assert not self.is_finished
        assert step is None or step >= self.step
        self.step = self.step + 1 if step is None else step
        self.points.append((points, self.step))

    def finish(self, exit_code=None):
        """The process is in it no more."""
        self.is_finished, self.exit_code = True, exit_code
        self.library.unfinished.remove(self)
        if self.library.run is self:
            self.library.run = None


class WandBLibrary:
    """``wandb`` outside notebooks: ``init`` gives the newest run that is not finished, if there is one."""

    def __init__(self):
        self.run, self.unfinished, self.meanwhile = None, [], lambda: None

    def init(self, reinit="default", **options):
        """A run; ``meanwhile`` is what another thread does before it is returned."""
        if reinit != "create_new" and self.unfinished:
            return self.unfinished[-1]
        self.unfinished.append(begun := WandBRun(self, **options))
        if reinit != "create_new":
            self.run = begun
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return begun


@pytest.fixture
def library(monkeypatch):
    """W&B's, without a server."""
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", made := WandBLibrary())
    return made


@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_failed_is_shown_as_failed_at_wandb(library, failed):
    """Its exit code is what W&B asks for that."""
    logger, run = WandB(), SimpleNamespace(folder=Path("a"), plan=SimpleNamespace(offline=False))
    logger.on_started(run, Started(env="E"))
    [begun] = library.unfinished
    logger.on_ended(run, Ended(failed=failed))
    assert begun.exit_code == int(failed)


def told(logger, name, *steps):
    """A run that a logger hears of, up to its end."""
    run = SimpleNamespace(folder=Path(name), plan=SimpleNamespace(offline=False))
    logger.on_started(run, Started(env="E", options={"learning_rate": 0.1}))
    for step in steps:
        logger.on_status(run, Status(env_steps=step, figures={"env_steps": step}))
        yield
    logger.on_ended(run, Ended())


def test_a_run_that_the_script_has_begun_at_wandb_stays_the_scripts(library):
    """One of a sweep, for instance: each training is drawn behind what was logged, and the script goes on."""
    own = library.init()
    own.log({"own": 1.0})
    for name in ("runs/a", "runs/b"):
        list(told(WandB(), name, 100, 200))
    own.log({"own": 2.0})
    assert [step for _, step in own.points] == [1, 101, 201, 301, 401, 402]
    assert own.options["learning_rate"] == 0.1
    assert (library.run, own.is_finished) == (own, False)


def test_trainings_side_by_side_in_a_run_of_the_scripts_lose_no_point(library):
    """What W&B gets at an earlier step it leaves out, and a curve has one value at a step."""
    own = library.init()
    slow = told(WandB(), "runs/b", 50, 60)
    for _ in told(WandB(), "runs/a", 100, 200):
        next(slow)
        own.log({"own": 1.0})
    assert list(slow) == []
    assert [step for _, step in own.points] == [100, 150, 151, 200, 201, 202]


def test_what_a_run_of_the_scripts_does_not_take_is_named(library, caplog):
    """Its configuration takes what the logger was given; the project, for instance, is settled."""
    own = library.init()
    given = WandB("hoppers", tags=["sac"], config={"learning_rate": 0.2, "note": "mine"})
    list(told(given, "runs/a", 100))
    assert own.options == {"env": "E", "algorithm": "", "seed": 0, "learning_rate": 0.2, "note": "mine"}
    [said] = caplog.messages
    assert said == "WandB: the run that this script has begun stays as it is, without project, tags"
    caplog.clear()
    list(told(WandB(config={"note": "mine"}), "runs/b", 100))
    assert caplog.messages == []


def test_an_evaluation_of_the_first_policy_is_drawn_over_no_point_of_others(library):
    """It comes at no env steps, where the training before has drawn its last."""
    own = library.init()
    list(told(WandB(), "runs/a", 100))
    logger, run = WandB(), SimpleNamespace(folder=Path("runs/b"), plan=SimpleNamespace(offline=False))
    logger.on_started(run, Started(env="E"))
    logger.on_evaluation(run, Evaluation(env_steps=0, mean_return=1.0))
    assert [step for _, step in own.points] == [100, 101]


def test_a_wandb_without_runs_side_by_side_is_refused_before_a_run(library, monkeypatch):
    """Where no release is known, as of a module beside the script, it is tried."""
    library.__spec__ = metadata.__spec__  # it is there
    for here in ("0.19.10", "0.31.0rc1"):
        monkeypatch.setattr(metadata, "version", {"wandb": here}.__getitem__)
        assert len(checked([WandB()])) == 1
    monkeypatch.setattr(metadata, "version", {"wandb": "0.19.9"}.__getitem__)
    with pytest.raises(InputError, match=r"wandb 0[.]19[.]10 or newer is needed, and here is 0[.]19[.]9: "):
        checked([WandB()])


@pytest.mark.parametrize("given", [{}, {"config": {"note": "mine"}}])
def test_a_run_at_wandb_has_the_options_and_the_project_that_were_given(library, monkeypatch, given):
    """A configuration of one's own is joined to the options; the variable stands for the argument."""
    monkeypatch.setenv("WANDB_PROJECT", "of the variable")
    for named, project in ((WandB(**given), "of the variable"), (WandB("hoppers", **given), "hoppers")):
        training = told(named, "runs/a", 100)
        next(training)
        [begun] = library.unfinished
        assert begun.init["project"] == project
        assert begun.options["learning_rate"] == 0.1
        assert begun.options.get("note") == given.get("config", {}).get("note")
        assert list(training) == []


def test_trainings_of_a_script_have_a_run_each_at_wandb(library):
    """The end of one does not end the other, nor a third that begins then or a run of the script's own."""
    own = library.init(reinit="create_new")
    second = told(WandB(), "runs/b", 50, 60, 70)
    for _ in told(WandB(), "runs/a", 100):
        next(second)
    third = told(WandB(), "runs/c", 50, 60)
    next(third)
    assert len(list(second)) == 2
    assert len(list(third)) == 1
    assert (library.run, library.unfinished, own.points) == (None, [own], [])


def test_a_training_that_begins_while_another_one_begins_has_its_own_run(library):
    """``init`` waits for a server, and ``wandb.run`` may be set meanwhile."""
    second = told(WandB(), "runs/b", 50, 60)
    library.meanwhile = lambda: next(second)
    assert len(list(told(WandB(), "runs/a", 100))) == 1
    assert len(list(second)) == 1
    assert library.unfinished == []


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
