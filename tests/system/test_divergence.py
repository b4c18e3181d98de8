"""A whole run whose critics' loss turns to NaN: once or twice it goes back and goes on, for good it ends."""

import json
import os
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import ROOT
from tests.system.conftest import Run

GLITCHING = """
from pathlib import Path

from spreeze_zmq.algorithms.dqn import DQN

FAILED = []


class Glitching(DQN):
    def critic_loss(self, batch):
        found = super().critic_loss(batch)
        return found._replace(loss=found.loss * glitch(self.env_steps, TIMES))


def glitch(env_steps, times):
    kept = list((Path(__file__).parent / "run" / "checkpoints").glob("*/MANIFEST.json"))
    if env_steps < 2500 or not kept or len(FAILED) >= times:
        return 1.0
    FAILED.append(env_steps)
    return float("nan")
"""
TOPOLOGY = """
[run]
env = "tests.system.holding:pole"
env_kwargs = { until = "FOLDER/run/checkpoints/*/MANIFEST.json" }
algorithm = "glitching:Glitching"
stop = { env_steps = 6_000 }
checkpoint_minutes = 0.015
[algorithm]
learning_starts = 64
batch_size = 32
hidden_sizes = [16]
[balance]
replay_ratio = 4.0
[components.sampler]
count = 1
"""


@pytest.fixture
def glitched(tmp_path, monkeypatch):
    """Launches a run of one learner whose loss is NaN so many times after its first checkpoint."""
    runs = []

    def start(times):
        (tmp_path / "glitching.py").write_text(GLITCHING.replace("TIMES", str(times)))
        (tmp_path / "mine.toml").write_text(TOPOLOGY.replace("FOLDER", str(tmp_path)))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(tmp_path))))
        runs.append(Run(tmp_path / "run", "--without", "evaluator", topology=str(tmp_path / "mine.toml")))
        return runs[-1]

    yield start
    for run in runs:
        run.clear()


@pytest.mark.long("checkpoints are waited for, twice")
def test_a_learner_that_diverges_twice_goes_back_and_goes_on(glitched):
    """The run takes all of its steps, and says from which checkpoint it went on."""
    run = glitched(2)
    assert run.end() == 0, run.said()
    summary = run.summary()
    assert summary["env_steps"] >= 6_000
    returns = [failure["summary"] for failure in summary["failures"]]
    assert len(returns) == 2
    for number, said in enumerate(returns, 1):
        assert "glitching:Glitching: critic_loss is nan at update" in said
        assert "back to checkpoint 0000" in said
        assert f"({number} of 3 times)" in said
    assert summary["restarts"] == 0
    assert_it_is_told(run, returns)


def assert_it_is_told(run, returns):
    """With updates and checkpoint: in the summary, on the terminal meanwhile, in the journal, as a curve."""
    rows, screen = run.summary()["went_back"], run.output.read_text()
    assert [row["why"] for row in rows] == returns
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    noted = [line for line in lines if line["kind"] == "failure"]
    events = EventAccumulator(str(run.folder)).Reload()
    curve = events.Scalars("train/critic_learner-0_went_back_after_updates")
    for row, note, point in zip(rows, noted, curve, strict=True):
        assert row["learner"] == "critic_learner-0"
        at = re.search(r"critic_loss is nan at update (\d+);", row["why"])
        assert int(at[1]) == row["updates"] + 1
        assert f": after {row['updates']:,} updates back to checkpoint {row['checkpoint']} (" in row["why"]
        assert (note["updates"], note["checkpoint"]) == (row["updates"], row["checkpoint"])
        assert (point.value, point.step) == (row["updates"], row["env_steps"])
        assert screen.index(f"note critic_learner-0: {row['why']}") < screen.index("ended after")
    assert rows[0]["updates"] <= rows[1]["updates"]


@pytest.mark.thorough
def test_a_learner_that_diverges_for_good_ends_the_run(glitched):
    """After three returns, with the loss's own line last and exit code 2."""
    run = glitched(1000)
    assert run.end() == 2, run.said()
    last = run.output.read_text().strip().splitlines()[-1]
    assert last.startswith("critic_learner-0: glitching:Glitching: critic_loss is nan at update"), run.said()
    assert len([f for f in run.summary()["failures"] if "back to checkpoint" in f["summary"]]) == 3
