"""Runs that end without something that they were asked to have: the last line says so, and exit code 1."""

import re
import shutil

import pytest

from tests.system import arm
from tests.system.conftest import adds_up, two_cores

TOPOLOGY = """
run = { env = "brittle:Arm", algorithm = "dqn", stop = { minutes = 30 } }
algorithm = { hidden_sizes = [16], learning_starts = 256 }
components = { sampler = { count = 1 }, critic_learner = { start_timeout_s = 120 } }
"""
#: It cannot be made in the second group, or on a machine of which that is said.
MODULE = """
import os
import sys

import arm

class Arm(arm.Arm):
    def __init__(self):
        if "BRITTLE" in os.environ or any("/groups/1" in word for word in sys.argv):
            raise FileNotFoundError("no meshes/arm.stl")
"""
FAULT = "no meshes/arm.stl"


@pytest.fixture
def start(launch, tmp_path):
    """Starts a run with further arguments."""
    shutil.copy(arm.__file__, tmp_path)
    (tmp_path / "brittle.py").write_text(MODULE)
    (tmp_path / "brittle.toml").write_text(TOPOLOGY)
    return lambda *more: launch(*more, topology=str(tmp_path / "brittle.toml"))


def last_line(run):
    """The last line of a run that trains, and that Ctrl-C ends with exit code 1; nothing is left."""
    run.until_training(1)
    run.interrupt()
    assert run.end() == 1, run.said()
    assert adds_up(run.summary()["samples"])
    assert run.leftovers() == []
    return run.output.read_text().splitlines()[-1]


@two_cores
@pytest.mark.long("two groups start")
@pytest.mark.timeout(400)
def test_a_group_that_always_fails_at_its_start_is_named(start):
    """With what is wrong in it, although the run's own group trains."""
    run = start("--set", "groups.count=2")
    run.until(lambda: "group 1 (member-0) is lost" in run.output.read_text(), "the loss of a group", 180)
    last = last_line(run)
    assert last.startswith("the run ended without group 1 (member-0): "), last
    assert FAULT in last
    assert list(run.summary()["lost"]) == ["member-0"]


@pytest.mark.long("a machine is silent for 5 s")
@pytest.mark.timeout(400)
def test_machines_that_are_missing_or_failed_are_named(start, join, monkeypatch):
    """The only one for the evaluator is gone, one cannot make the environment, one of ``--nodes`` cannot be
    reached: each is named with its reason, although the run trains.
    """
    monkeypatch.setenv("SPREEZE_SSH", "sh -c 'echo no route to desk9; exit 255'")
    more = ("--listen", "127.0.0.1", "--nodes", "ssh:desk9", "--set", "placement.evaluator=node")
    run = start(*more)
    only = join(run, "--samplers", "0")
    run.until(lambda: "evaluator-0 runs on" in run.output.read_text(), "a machine for the evaluator", 120)
    assert join(run, "--samplers", "1", BRITTLE="1").half.wait(150) == 2
    run.until(lambda: "is gone: sampler-1" in run.output.read_text(), "that a machine is turned out", 120)
    only.half.kill()
    run.until(lambda: "is gone: not heard for 5 s" in run.output.read_text(), "the loss of a machine")
    last = last_line(run)
    assert "without evaluator-0: waits for a machine that joins" in last
    assert "is gone: not heard for 5 s" in last
    assert re.search(rf"without \S+ \(node-2\): sampler-1: .*{FAULT}", last), last
    assert "without ssh desk9: no route to desk9 (" in last
    assert len(run.summary()["lost"]) == 3
