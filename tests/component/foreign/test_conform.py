"""The samplers in other languages keep every clause that a program must keep."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def conform(*words):
    """Exit code and table of ``spreeze conform sampler``."""
    command = [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "conform", "sampler", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_cpp_keeps_every_clause(built_cpp):
    """That it must keep; with ``--tier should`` it keeps those too."""
    program = (sys.executable, ROOT / "components" / "sampler_cpp")
    code, said = conform("--topology", "halfcheetah", "--", *program)
    assert code == 0, said
    assert " 0 broken" in said


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_javascript_keeps_every_clause_that_it_must(new_node):
    """As ``spreeze new`` wrote it."""
    code, said = conform("--tier", "fast", "--", "node", new_node / "sampler.js")
    assert code == 0, said
    assert " 0 broken" in said
