"""``--resume RUN`` alone, in another folder than the run was begun in: it trains what the run trained."""

import sys

import pytest

from spreeze_zmq.base.trust import leave_mark, modules_folder
from spreeze_zmq.commands import launch
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.run.folder import RunFolder, write_plan

ENV = """import gymnasium
def make(**kwargs):
    return gymnasium.make("Pendulum-v1", max_episode_steps={steps})
"""
MODULE = "own_moved"


@pytest.fixture
def plans(tmp_path, monkeypatch):
    """Two folders with a module of the same name; takes the plans that would be launched."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, steps in (("a", 11), ("b", 22)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{MODULE}.py").write_text(ENV.format(steps=steps))
    plans = []
    monkeypatch.setattr(launch, "_launch", lambda plan, *_: plans.append(plan) or 0)
    monkeypatch.setattr(launch, "_resumed", lambda plan, run: (plan, None))
    return plans


def stand_in(folder, monkeypatch):
    """Work in a folder, as a new program does."""
    monkeypatch.chdir(folder)
    sys.path[:] = [path for path in sys.path if not path.startswith(str(folder.parent))]
    sys.modules.pop(MODULE, None)


def begin(folder, plans, *words):
    """Begin a run, up to its processes."""
    assert launch.main(["--set=run.stop.env_steps=100", *words]) == 0
    plan, run = plans.pop(), RunFolder.create("run", str(folder / "run"))
    _, sockets = write_plan(plan, run)
    sockets.remove()
    leave_mark(run.path, own_modules(plan), modules_folder(plan.topology_file))
    return run.path


def test_a_run_without_a_topology_finds_its_environment_in_its_own_folder(tmp_path, plans, monkeypatch):
    """Wherever it is resumed."""
    stand_in(tmp_path / "a", monkeypatch)
    run = begin(tmp_path, plans, f"--env={MODULE}:make")
    stand_in(tmp_path, monkeypatch)
    assert launch.main(["--resume", str(run)]) == 0
    assert plans[0].environment.max_episode_steps == 11
    assert modules_folder(plans[0].topology_file) == tmp_path / "a"


@pytest.mark.parametrize("words", [(f"--env={MODULE}:make",), ("pendulum", f"--set=run.env={MODULE}:make")])
def test_another_module_of_the_same_name_is_not_trained_with(words, tmp_path, plans, monkeypatch, capsys):
    """The current folder comes first, so the run is not resumed there."""
    stand_in(tmp_path / "a", monkeypatch)
    run = begin(tmp_path, plans, *words)
    assert launch.main(["--resume", str(run)]) == 0
    stand_in(tmp_path / "b", monkeypatch)
    capsys.readouterr()
    assert launch.main(["--resume", str(run)]) == 2
    says = f"{MODULE} is the one in {tmp_path}/b here, and the run's is in {tmp_path}/a: go on in that folder"
    assert says in capsys.readouterr().err
    assert launch.main(["--resume", str(run), *words]) == 0, "what is written counts more"
