"""Runs without a topology file, of several seeds, listed and compared; what starts nothing."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import psutil
import pytest

import spreeze_zmq
from spreeze_zmq.commands import launch as launching
from spreeze_zmq.commands import spreeze as spreeze_command
from spreeze_zmq.commands.launch import main
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.topology.document import shipped_topologies
from spreeze_zmq.run.curves import AXES, read_curve
from spreeze_zmq.run.history import find_runs, read_run
from tests.system.conftest import LAUNCH, Run, said_in

#: One learner.
DQN = ("--algorithm", "dqn")
QUICK = (*DQN, "--set", "run.stop.env_steps=1500", "--set", "algorithm.learning_starts=300")


def said(folder, *arguments):
    """What a launcher that starts nothing prints."""
    code, printed, errors = said_in(folder, *arguments)
    assert (code, errors) == (0, "")
    assert list(folder.iterdir()) == []
    return printed


def test_the_list_has_a_line_for_each_shipped_topology(tmp_path):
    """Its name, environment, algorithm, and what its file says of itself."""
    heading, *lines = said(tmp_path, "--list").splitlines()
    assert heading.split() == ["topology", "environment", "algorithm", "what", "it", "is"]
    assert [line.split()[0] for line in lines] == shipped_topologies()
    [pendulum] = [line for line in lines if line.startswith("pendulum ")]
    assert re.fullmatch(r"pendulum +Pendulum-v1 +sac +Swing a pendulum up and hold it.*\.", pendulum)


def test_the_version_is_the_packages(tmp_path):
    """One word."""
    assert said(tmp_path, "--version").split() == [spreeze_zmq.__version__]


def test_a_launcher_needs_no_torch():
    """It would cost every run 200 MB, and every mistake a second."""
    program = "import sys, spreeze_zmq.commands.launch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Two runs without a topology file; the folder that it was started in, and what was printed."""
    folder, output = tmp_path_factory.mktemp("seeds"), tmp_path_factory.mktemp("said") / "said.txt"
    with contextlib.chdir(folder):
        words = ("--env", "CartPole-v1", "--seeds", "2", "--set", "run.seed=7", *QUICK)
        launcher = Run.begin(words, output)
    try:
        assert launcher.wait(170) == 0, output.read_text()
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            launcher.kill()
    assert "spreeze-launch --resume runs/" in output.read_text()
    return folder, output.read_text()


def spreeze(folder, *arguments):
    """What a command prints."""
    code, printed, errors = said_in(folder, *arguments, main=spreeze_command.main)
    assert (code, errors) == (0, "")
    return printed


def test_a_seed_that_is_there_already_is_refused_before_the_first_run(tmp_path):
    """Not when its turn comes, hours later."""
    (tmp_path / "all" / "seed-9").mkdir(parents=True)
    (tmp_path / "all" / "seed-9" / "run.json").write_text("{}")
    words = ("--env", "CartPole-v1", "--seeds", "3", "--set", "run.seed=7", *QUICK, "--run-dir", "all")
    code, _, errors = said_in(tmp_path, *words)
    assert (code, [path.name for path in (tmp_path / "all").iterdir()]) == (2, ["seed-9"])
    assert errors.startswith(
        "spreeze-launch: --run-dir all/seed-9 holds something already; choose a new folder"
    )


@pytest.mark.long("two runs, one after the other")
@pytest.mark.timeout(200)
def test_seeds_run_one_after_another_without_a_topology_file(seeds):
    """Two runs with folders of their own below one, named after the environment; a line each at the end."""
    folder, said = seeds
    [parent] = (folder / "runs").iterdir()
    assert parent.name.startswith("CartPole-v1-")
    assert sorted(path.name for path in parent.iterdir()) == ["seed-7", "seed-8"]
    ends = [line for line in said.splitlines() if line.startswith("seed ")]
    for seed, line in zip((7, 8), ends, strict=True):
        run = f"runs/{parent.name}/seed-{seed}"
        assert re.fullmatch(rf"seed {seed}: .* env steps \(1,500 env steps reached\); {run}", line), line
        assert read_run(folder / run).plan["run"]["seed"] == seed


def test_runs_are_listed_with_how_they_ended(seeds):
    """A table for people, a list for programs, the same figures as in summary.json."""
    folder, _ = seeds
    heading, *lines = spreeze(folder, "runs").splitlines()
    assert heading.startswith("run ")
    assert [line.split()[3:7] for line in lines] == [["CartPole-v1", "dqn", seed, "ended"] for seed in "78"]
    for row in json.loads(spreeze(folder, "runs", "--json")):
        summary = read_run(folder / "runs" / row["run"]).summary
        assert {name: summary[name] for name in ("best_return", "wall_s", "env_steps", "exit_reason")} == {
            name: row[name] for name in ("best_return", "wall_s", "env_steps", "exit_reason")
        }


def test_seeds_are_compared_as_one_setting(seeds, tmp_path):
    """One line for both; a CSV whose last point is the mean of both runs; a picture that can be decoded."""
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    folder, _ = seeds
    table, picture = tmp_path / "curves.csv", tmp_path / "curves.png"
    said = spreeze(folder, "compare", "runs", "--csv", table, "--png", picture).splitlines()
    assert re.match(r"CartPole-v1 dqn +CartPole-v1 +2 +\d", said[1]), said
    rows = [row for row in csv.DictReader(table.open()) if row["axis"] == "env_steps"]
    curves = [read_curve(run.folder) for run in find_runs(folder / "runs")]
    last = float(rows[-1]["x"])
    assert last == min(curve.x["env_steps"][-1] for curve in curves)
    expected = np.mean([curve.at("env_steps", np.array([last]))[0] for curve in curves])
    assert float(rows[-1]["return"]) == pytest.approx(expected)
    assert {row["middle"] for row in rows} == {"mean"}
    assert imageio.imread(picture).shape[1] == 600 * (len(AXES) + 1)  # the last one for best returns


def test_a_process_joins_by_the_line_that_the_launcher_says(launch, tmp_path):
    """As a shell reads it, from another folder: the place that was left free is taken, the run goes on, and
    stops the process with the rest.
    """
    stop = ("--set", "run.stop.return=1000", "--set", "run.stop.env_steps=4000")
    run = launch("--without", "sampler", *stop, topology="cartpole_dqn")
    said = run.until(lambda: re.search(r"left free; join with: (.*)", run.output.read_text()), "line to join")
    assert " -m spreeze_zmq.components.sampler " in said[1]
    run.until(lambda: len(run.processes()) == 3, "three processes")
    assert read_run(run.folder).state == "running"
    with (tmp_path / "sampler.log").open("w") as log:
        sampler = subprocess.Popen(said[1], shell=True, cwd="/", stderr=log, start_new_session=True)
    try:
        assert run.end() == 0, run.said()
        assert sampler.wait(30) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sampler.pid, signal.SIGKILL)
        sampler.wait()
    assert "ready" in (tmp_path / "sampler.log").read_text()
    assert run.summary()["env_steps"] >= 4000
    assert run.leftovers() == []


def test_a_component_runs_in_the_debugger(seeds):
    """Named by its module, with a run's folder; this run is over, which it says."""
    folder, _ = seeds
    [run, _] = [run.folder for run in find_runs(folder / "runs")]
    command = (sys.executable, "-m", "pdb", "-m", "spreeze_zmq.components.sampler", str(run))
    done = subprocess.run(command, input="c\n", cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("> ")
    assert "sampler: the run is over: its socket folder" in done.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--env", "Acrobot-v1", *DQN), 'run.env is "Acrobot-v1" here and was "CartPole-v1" there'),
        (("--env", "CartPole-v1", "--algorithm", "pqn"), 'run.algorithm is "pqn" here and was "dqn" there'),
        (
            ("--env", "CartPole-v1", *DQN, "--set", "algorithm.hidden_sizes=[8]"),
            "algorithm.hidden_sizes is [8] here and was [128, 128] there",
        ),
    ],
)
def test_a_resume_that_does_not_fit_starts_nothing(seeds, tmp_path, monkeypatch, capsys, flags, says):
    """Another environment, another algorithm, other networks: refused before there is a folder."""
    folder, _ = seeds
    [run, _] = [run.folder for run in find_runs(folder / "runs")]
    monkeypatch.chdir(tmp_path)
    assert main([*flags, "--resume", str(run)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == f"spreeze-launch: --resume {run} does not fit: {says}"
    assert list(tmp_path.iterdir()) == []


def test_a_topologys_folder_is_where_its_modules_are(tmp_path, monkeypatch, capsys):
    """From wherever it is launched."""
    source = (Path(__file__).parents[1] / "unit/envs/mistaken_environments.py").read_text()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "arm_beside_topology.py").write_text(source)
    (tmp_path / "project" / "reach.toml").write_text('[run]\nenv = "arm_beside_topology:Right"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["project/reach.toml", "--check"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.splitlines()[0] == "project/reach.toml: nothing to mend"


def test_modules_of_a_shipped_topology_are_in_the_current_folder(tmp_path, monkeypatch, capsys):
    """It stands beside none of the user's; another folder's are not found."""
    own = "from spreeze_zmq import Callback\nfrom spreeze_zmq.algorithms.sac import SAC as OwnSac\n"
    (tmp_path / "own_beside_nothing.py").write_text(f"{own}class Hears(Callback): pass\n")
    words = ["pendulum", "--check", "--algorithm=own_beside_nothing:OwnSac"]
    assert main(words) == 2
    assert "no module is called 'own_beside_nothing'; is it beside the topology" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--callback=own_beside_nothing:Hears"]) == 0, capsys.readouterr().err


def test_the_module_finds_what_the_program_finds(tmp_path):
    """``python -m`` too passes over the current directory, in which no process would find an algorithm."""
    (tmp_path / "project").mkdir()
    (tmp_path / "own_here.py").write_text("from spreeze_zmq.algorithms.dqn import DQN as Own\n")
    (tmp_path / "project" / "own.toml").write_text('[run]\nenv = "CartPole-v1"\nalgorithm = "own_here:Own"\n')
    command = [*LAUNCH, "project/own.toml", "--check"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2, done.stdout
    assert "no module is called 'own_here'; is it beside the topology" in done.stderr


def test_a_resume_needs_no_other_word(seeds, tmp_path, monkeypatch, capsys):
    """The run says what began it, the seed of a later one of several too; what is written beside it counts
    more, as it must where the run has reached its limit. From any folder.
    """
    folder, _ = seeds
    [_, run] = sorted(run.folder for run in find_runs(folder / "runs"))
    monkeypatch.chdir(tmp_path)
    assert main(["--resume", str(run), "--check"]) == 2
    further = "go on with --set run.stop.env_steps=3000"
    assert capsys.readouterr().err.rstrip().endswith(f"counted from the first run's beginning; {further}")
    more = ("--set", "run.stop.minutes=3", "--set", "run.stop.env_steps=3000")
    assert main(["--resume", str(run), *more, "--check"]) == 0
    said = capsys.readouterr().out
    assert "CartPole-v1" in said
    assert "minutes 3" in said
    assert Plan.read(run / "run.json").command[-1] == "--set=run.seed=8"


def test_a_resume_of_a_topology_file_finds_it_from_elsewhere(seeds, tmp_path, monkeypatch, capsys):
    """Its path was relative; a run that another program began has no command, and the error says so."""
    folder, _ = seeds
    [run, _] = [run.folder for run in find_runs(folder / "runs")]
    (tmp_path / "mine.toml").write_text('[run]\nenv = "Pendulum-v1"\nstop = { env_steps = 500 }\n')
    monkeypatch.chdir(tmp_path)
    flags = ("--run-dir", "here", "--set", "algorithm.learning_starts=100")
    plans = []
    monkeypatch.setattr(launching, "_launch", lambda plan, *_: plans.append(plan) or 0)
    assert main(["mine.toml", *flags]) == 0
    command = plans[0].command
    assert command[:2] == (str(tmp_path / "mine.toml"), "--set=algorithm.learning_starts=100")
    plan = json.loads((run / "run.json").read_text())
    del plan["command"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text(json.dumps(plan))
    capsys.readouterr()
    assert main(["--resume", "old"]) == 2
    says = "--resume old: spreeze-launch did not begin it; write its TOPOLOGY or --env ID beside --resume"
    assert capsys.readouterr().err.splitlines()[-1] == f"spreeze-launch: {says}"
