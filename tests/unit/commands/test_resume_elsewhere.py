"""``--resume RUN`` alone, in another folder than the run was begun in: it trains what the run trained."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.trust import leave_mark, modules_folder
from spreeze_zmq.commands import launch
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire.channels import RecordingWriter

ENV = """import gymnasium
def make(**kwargs):
    return gymnasium.make("Pendulum-v1", max_episode_steps={steps})
"""
MODULE = "own_moved"
#: Says where another process imports it from.
WHERE = (sys.executable, "-P", "-c", f"import {MODULE}; print({MODULE}.__file__)")


@pytest.fixture
def plans(tmp_path, monkeypatch):
    """Two folders with a module of the same name; takes the plans that would be launched."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    for name, steps in (("a", 11), ("b", 22)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{MODULE}.py").write_text(ENV.format(steps=steps))
    plans = []
    monkeypatch.setattr(launch, "_launch", lambda plan, *_: plans.append(plan) or 0)
    origin = SimpleNamespace(advice=lambda plan: ())
    monkeypatch.setattr(launch, "_resumed", lambda plan, run, settings: (plan, origin))
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


def test_a_run_of_a_script_finds_its_modules_beside_that_script(tmp_path, plans, monkeypatch):
    """Although it was started from elsewhere: the launcher finds them, and so do the processes of the run."""
    stand_in(tmp_path, monkeypatch)
    sys.path.append(str(tmp_path / "a"))  # as ``train`` has the launcher import
    run = begin(tmp_path, plans, f"--env={MODULE}:make")
    stand_in(tmp_path / "run", monkeypatch)
    assert launch.main(["--resume", str(run)]) == 0
    assert plans[0].environment.max_episode_steps == 11
    said = subprocess.run(WHERE, capture_output=True, text=True, check=True)
    assert said.stdout == f"{tmp_path}/a/{MODULE}.py\n"


def test_what_a_script_recorded_is_replayed_with_its_modules(tmp_path, plans, monkeypatch):
    """The process that is fed finds them."""
    stand_in(tmp_path, monkeypatch)
    sys.path.append(str(tmp_path / "a"))
    run = begin(tmp_path, plans, f"--env={MODULE}:make")
    about = {"name": "sampler-0", "role": "sampler", "index": 0, "incarnation": 1, "channels": []}
    writer = RecordingWriter(
        run / "recordings", {**about, "plan": json.loads((run / "run.json").read_text())}, 1
    )
    writer.close()
    command = (sys.executable, "-m", "spreeze_zmq.commands.spreeze", "replay", str(writer.path), "--", *WHERE)
    said = subprocess.run(command, cwd=run, capture_output=True, text=True, check=False, timeout=60)
    assert f"{tmp_path}/a/{MODULE}.py\n" in said.stdout, said.stderr


def test_a_run_with_an_observer_of_ones_own_resumes(tmp_path, plans, monkeypatch):
    """A program that takes no callbacks."""
    stand_in(tmp_path / "a", monkeypatch)
    (tmp_path / "a" / "mine").mkdir()
    (tmp_path / "a" / "mine" / "component.toml").write_text('role = "observer"\ncommand = ["python"]\n')
    words = (f"--env={MODULE}:make", "--set=components.observer.use=./mine")
    run = begin(tmp_path, plans, *words)
    assert launch.main(["--resume", str(run)]) == 0


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
