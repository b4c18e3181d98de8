"""The examples that a newcomer reads first do what they say."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "components" / "examples"
TASKS = [("sac", -200.0), ("ppo", 475.0), ("dqn", 475.0)]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "goal"), TASKS)
def test_one_process_learns_its_task(name, goal):
    """A plain loop reaches its goal, and its last line says so."""
    command = [sys.executable, EXAMPLES / f"{name}_in_one_process.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert float(done.stdout.split()[-1]) >= goal


@pytest.mark.parametrize(("name", "goal"), [("sac", -600.0), ("ppo", 50.0), ("dqn", 50.0)])
def test_one_process_begins_to_learn_its_task(name, goal, monkeypatch, capsys):
    """Twice as well as at random, by the loop of the others."""
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module(f"{name}_in_one_process")
    monkeypatch.setattr(module, "GOAL", goal)
    module.main()
    assert float(capsys.readouterr().out.split()[-1]) >= goal
