"""A run that does not learn says so: while it runs, at its end, and afterwards."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.base.journal import read_journal
from tests.system.conftest import LAUNCH

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.thorough
def test_a_run_with_a_constant_reward_says_so_everywhere(tmp_path):
    """In a note, first among the last lines, in the journal, the summary and ``spreeze doctor``."""
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    words = ["--env", "sick_environments:ConstantReward", "--set", "run.stop.minutes=0.6", "--run-dir", "run"]
    done = subprocess.run(
        [*LAUNCH, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert "note finding: every reward reported in" in done.stdout
    lines = done.stderr.strip().splitlines()
    [at] = [index for index, line in enumerate(lines) if line.startswith("ended after")]
    assert lines[at + 1].startswith("finding: every reward reported in")
    run = tmp_path / "run"
    found = json.loads((run / "summary.json").read_text())["findings"]
    assert found[0]["name"] == "constant_reward"
    assert found[0]["t_s"] < 60.0
    named = [row["name"] for row in read_journal(run / "metrics.jsonl") if row["kind"] == "finding"]
    assert "constant_reward" in named
    command = [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "doctor", "run"]
    judged = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert judged.returncode == 1
    assert judged.stdout.startswith("constant_reward: every reward reported in")
