"""Advice on a topology without mistakes: from ``--check``, and on the screen when a run starts."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.system.conftest import LAUNCH, said_in

ROOT = Path(__file__).parents[2]
OWN = "tests.unit.envs.mistaken_environments"
UNSCALED = "exceed 1,000, number 0 is around 1e+12 in size: set algorithm.normalize_observations = true"
SMALL = "algorithm.replay_capacity=2000"


def checked(folder, *words):
    """The lines of ``--check``."""
    code, said, errors = said_in(folder, *words, "--check")
    assert (code, errors) == (0, "")
    return said.splitlines()


def test_check_gives_advice(tmp_path):
    """Under a heading that does not say that all is well."""
    head, *rows = checked(tmp_path, "--env", f"{OWN}:Unscaled")
    assert head.endswith(": no mistake, but advice")
    [row] = [row for row in rows if row.split()[0] == "advice"]
    assert row.endswith(UNSCALED)


@pytest.mark.parametrize(
    "words",
    [
        ("--env", f"{OWN}:Unscaled", "--set", "algorithm.normalize_observations=true"),
        ("--env", f"{OWN}:Pixels", "--algorithm", "sac", "--set", SMALL),
        ("--env", "Humanoid-v5"),
    ],
)
def test_what_needs_none_gets_none(tmp_path, words):
    """SAC has convolutions for pixels; large forces of a simulated body are no mistake."""
    assert checked(tmp_path, *words)[0].endswith(": nothing to mend")


def test_a_start_gives_the_same_advice(tmp_path):
    """As a note, before anything else."""
    words = ["--env", f"{OWN}:Unscaled", "--set", "run.stop.minutes=0.02"]
    words += ["--without", "critic_learner", "--without", "actor_learner"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*LAUNCH, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode in (0, 1), done.stderr  # 1: the shortest run takes no step
    assert f"advice: run.env: 1 of the 3 numbers of an observation {UNSCALED}" in done.stdout + done.stderr
