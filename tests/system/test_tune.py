"""``spreeze tune`` as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.base import machine
from spreeze_zmq.commands import spreeze
from spreeze_zmq.plan import sizing, topology, tuning
from tests.system.conftest import NAPPING, said_in

ROOT = Path(__file__).parents[2]
TUNE = (sys.executable, "-m", "spreeze_zmq.commands.spreeze", "tune")
SMALL = ("--set", "components.sampler.count=[1, 2]", *NAPPING["cartpole_dqn"])
AUTO = ("--set", "algorithm.batch_size=auto", "--set", "algorithm.max_batch_size=128")


@pytest.mark.long("rates are measured until they are steady")
@pytest.mark.timeout(400)
def test_it_prints_the_plan_and_keeps_it_for_the_next_run(nothing_measured, tmp_path, monkeypatch):
    """The same figures for a person and in JSON; nothing but the cache stays behind."""
    command = [*TUNE, "cartpole_dqn", *SMALL, *AUTO, "--seconds", "300", "--json", "figures.json"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert f"plan: {figures['samplers']} samplers of 1 to 2, 16 environments in each" in done.stdout
    assert figures["trained_per_s"] > 0
    assert str(figures["samplers"]) in figures["tried_trained_per_s"]["samplers"]
    assert figures["settled"], done.stdout
    assert (figures["disturbances"], figures["kept"]) == (0, True), done.stdout
    batch_size = figures["auto"]["batch_size"]["chosen"]
    assert f"batch_size {batch_size} trains" in done.stdout
    plan = topology.load("cartpole_dqn", [setting for setting in (*SMALL, *AUTO) if setting != "--set"])
    plan = sizing.settle(plan)
    assert plan.algorithm["batch_size"] == batch_size
    assert tuning.recall(plan).samplers == figures["samplers"]
    assert done.stdout.splitlines()[-1] == f"kept in {machine.file_of(tuning.subject_of(plan))}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "figures.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pendulun",), "pendulum"),
        (("pendulum", "--seconds", "0"), "expected 1 to 3600"),
        (("pendulum", "--json", "nowhere/figures.json"), "there is no folder"),
        (("pendulum", "--set", "run.sed=1"), 'did you mean "seed"'),
    ],
)
def test_bad_input_starts_nothing(tmp_path, arguments, words):
    """One clear error, exit code 2."""
    code, out, errors = said_in(tmp_path, "tune", *arguments, main=spreeze.main)
    assert (code, out) == (2, "")
    assert words in errors
