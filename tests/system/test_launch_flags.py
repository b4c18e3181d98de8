"""Runs without a topology file, several seeds, and what the launcher prints without starting anything."""

import re
import subprocess

import pytest

import spreeze_zmq
from spreeze_zmq.topology.source import shipped_topologies
from tests.system.conftest import LAUNCH

QUICK = ("--set", "run.stop.env_steps=1500", "--set", "algorithm.learning_starts=300")


def said(folder, *arguments):
    """What a launcher that starts nothing prints."""
    done = subprocess.run([*LAUNCH, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    assert list(folder.iterdir()) == []
    return done.stdout


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


@pytest.mark.timeout(180)
def test_seeds_run_one_after_another_without_a_topology_file(tmp_path):
    """Two runs with folders of their own below one, named after the environment; a line each at the end."""
    command = [*LAUNCH, "--env", "Pendulum-v1", "--seeds", "2", "--set", "run.seed=7", *QUICK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    [parent] = (tmp_path / "runs").iterdir()
    assert parent.name.startswith("Pendulum-v1-")
    assert sorted(path.name for path in parent.iterdir()) == ["seed-7", "seed-8"]
    for seed, line in zip((7, 8), done.stdout.splitlines()[-2:], strict=True):
        folder = f"runs/{parent.name}/seed-{seed}"
        assert re.fullmatch(rf"seed {seed}: .* env steps \(env_steps 1\d+ >= 1500\); {folder}", line), line
    [plan, other] = [(parent / f"seed-{seed}" / "run.json").read_text() for seed in (7, 8)]
    assert '"seed": 7' in plan
    assert '"seed": 8' in other
