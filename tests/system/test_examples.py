"""The examples that a newcomer reads first do what they say."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import thorough_but

EXAMPLES = Path(__file__).parents[2] / "components" / "examples"
TASKS = [("sac", -200.0), ("ppo", 475.0), ("dqn", 475.0)]


@pytest.mark.parametrize(("name", "goal"), thorough_but(TASKS[0], of=TASKS))
def test_one_process_learns_its_task(name, goal):
    """A plain loop reaches its goal, and its last line says so."""
    command = [sys.executable, EXAMPLES / f"{name}_in_one_process.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert float(done.stdout.split()[-1]) >= goal


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_one_process_learns_to_hold_the_pole_for_a_while(name, monkeypatch, capsys):
    """Twice as long as at random, by the loop of the others."""
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module(f"{name}_in_one_process")
    monkeypatch.setattr(module, "GOAL", 50.0)
    module.main()
    assert float(capsys.readouterr().out.split()[-1]) >= 50.0
